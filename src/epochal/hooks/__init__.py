"""Built-in hooks: console, records, trackers, checkpoints, early stopping, mixing, profiler."""
