"""Losses, each a mean over the items of a batch."""
