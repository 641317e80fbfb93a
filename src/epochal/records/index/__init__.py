"""The index of all runs: a SQLite cache that answers at once and is rebuilt from the folders."""

from epochal.records.index.index import Index
from epochal.records.index.refresh import RefreshResult

__all__ = ["Index", "RefreshResult"]
