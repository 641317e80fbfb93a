"""Datasets and loaders."""

from epochal.components.data.tensors import Tensors

__all__ = ["Tensors"]
