"""Encoders and classifiers as files for other programs; the suffix of a file chooses its kind."""
