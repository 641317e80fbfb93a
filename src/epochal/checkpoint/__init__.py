"""Tensors in and out of files that outlive the run."""

from epochal.checkpoint.weights import Mismatch, apply_weights, load_weights, save_weights

__all__ = ["Mismatch", "apply_weights", "load_weights", "save_weights"]
