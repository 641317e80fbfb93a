"""Data: from a dataset to batches."""

from epochal.components.data.tensors import Tensors

__all__ = ["Tensors"]
