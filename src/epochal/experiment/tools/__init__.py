"""Plan, profile, find-lr, find-batch and repro."""
