"""Supervised runs: child processes that are started, watched and restarted."""
