"""From a checked config to the parts of a run."""
