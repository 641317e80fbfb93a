"""Reads data loaders, and groups their batches into the microbatches of a step."""
