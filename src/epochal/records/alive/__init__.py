"""Heartbeat, lease and disk reserve of a running process."""
