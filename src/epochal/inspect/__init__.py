"""What can be found out about a machine before anybody trains on it."""
