"""Results that people would rather look at than read."""
