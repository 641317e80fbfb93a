"""The only place that builds parts from config and puts them together into a run."""
