"""The command line's tests read messages that name the command."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def command_can_be_named(command_on_path: None) -> None:
    """The shell finds ``epochal``."""
