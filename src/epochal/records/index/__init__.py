"""The index of all runs: a SQLite cache that can be rebuilt from the run folders."""

from epochal.records.index.index import Index
from epochal.records.index.refresh import RefreshResult

__all__ = ["Index", "RefreshResult"]
