"""Deliberate mistakes, each of which the tests named for it must notice (`make mutants`)."""
