"""Layers, FLOPs and latency of a model."""
