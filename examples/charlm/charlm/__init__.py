"""A small GPT that learns to write Python, one character at a time."""
