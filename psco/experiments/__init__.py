"""Whole experiments: train, evaluate and report in one call."""
