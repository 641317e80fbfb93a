"""What people see of a run: a progress bar on a terminal, log lines elsewhere."""
