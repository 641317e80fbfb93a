"""What every test starts from: one thread, no colour, no leftovers between tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("FORCE_COLOR", None)


@pytest.fixture(autouse=True)
def registered_names_are_forgotten() -> Iterator[None]:
    """Names that a test registers must not be seen by the next."""
    from epochal import registry

    before = {kind: dict(names) for kind, names in registry.REGISTERED.items()}
    yield
    registry.REGISTERED.clear()
    registry.REGISTERED.update(before)
