"""One run in progress: its position, its parts, its services, and what is due between steps."""
