"""User code of a config with one mistake of every kind."""
