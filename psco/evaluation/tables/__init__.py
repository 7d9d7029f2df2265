"""The tables and figures of the paper as YAML files: what was run, and the printed numbers."""
