"""The loss that a config describes."""
