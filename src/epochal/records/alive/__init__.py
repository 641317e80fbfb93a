"""Whether the process of a run is alive."""
