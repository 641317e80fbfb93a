"""What people see of a run: a progress bar on a terminal, log lines elsewhere."""

from epochal.hooks.console.progress import Console

__all__ = ["Console"]
