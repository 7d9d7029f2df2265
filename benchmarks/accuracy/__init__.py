"""Programs that measure accuracy, not speed."""
