"""Launching from the page: forms, checks, and what is added to the queue."""
