"""The index of all runs: a SQLite cache that answers at once and is rebuilt from the folders."""
