"""Parameter groups, learning rates, schedules and averaged weights."""
