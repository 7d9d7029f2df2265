"""Few-shot evaluation: embed images, classify with a rule, measure and compare."""
