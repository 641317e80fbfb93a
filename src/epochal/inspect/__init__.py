"""What ``epochal inspect data`` shows: facts about each split, and pages of samples."""
