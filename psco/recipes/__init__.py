"""Recipes: all settings of a run, read from YAML and checked."""
