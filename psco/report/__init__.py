"""Pages and plots: results as self-contained HTML files and pictures."""
