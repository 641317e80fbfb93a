"""The state of a run as trees, and the saver of checkpoints."""
