"""Shared tools: settings to measure, processes that take turns, statistics of paired turns."""
