"""Data sets with a name: the built-in glyphs and those of the paper."""
