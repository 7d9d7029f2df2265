"""Training: a recipe and images become a run folder."""
