"""Datasets and loaders."""

from epochal.components.data.datasets import Tensors

__all__ = ["Tensors"]
