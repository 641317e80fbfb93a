"""Parameter groups, several optimizers, learning rates and schedules."""
