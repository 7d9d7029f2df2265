"""A mutation fuzzer over every file that psco reads (`make fuzz`)."""
