"""What a run shows on screen: a progress bar on a terminal, log lines elsewhere."""

from epochal.hooks.console.console import Console

__all__ = ["Console"]
