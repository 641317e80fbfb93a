"""The command ``epochal``: one module per verb, imported only when its verb is typed."""

from epochal.cli.main import main

__all__ = ["main"]
