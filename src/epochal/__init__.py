"""Epochal trains PyTorch models from configuration."""
