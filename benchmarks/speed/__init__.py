"""How fast it is: ratios measured side by side, in one run, on the machine at hand."""
