"""Config values compared with types."""
