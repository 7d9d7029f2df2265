"""Few-shot evaluation: embed, classify with a rule, report and compare."""
