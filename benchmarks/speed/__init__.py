"""The benchmark behind `make bench`: training, evaluation, growth and start-up on this machine."""
