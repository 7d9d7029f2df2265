"""psco serve: a classifier that other programs and people reach over HTTP."""
