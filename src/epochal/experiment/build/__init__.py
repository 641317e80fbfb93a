"""From a checked config to the parts of a run, and the run."""
