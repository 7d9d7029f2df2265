"""The named data sets: the embedded glyphs and those of the paper."""
