"""The training process itself: signals and the watchdog."""
