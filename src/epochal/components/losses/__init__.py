"""Losses: what is descended, each a mean over the items of a batch."""
