"""Fixtures of the tests of the command line."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def command_can_be_named(command_on_path: None) -> None:
    """Let messages name the command ``epochal``."""
