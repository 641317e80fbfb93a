"""One module for each section of a config."""
