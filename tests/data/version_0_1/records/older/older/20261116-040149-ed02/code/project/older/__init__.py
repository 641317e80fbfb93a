"""A project that version 0.1 trained."""
