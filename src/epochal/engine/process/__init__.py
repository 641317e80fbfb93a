"""The training process and its loader workers: signals, hangs and crashes."""
