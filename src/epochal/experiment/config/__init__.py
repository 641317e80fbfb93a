"""From a file, a script and objects to one config."""
