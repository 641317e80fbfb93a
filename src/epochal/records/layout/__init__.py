"""Where files lie in a run folder, and how damaged ones are read."""
