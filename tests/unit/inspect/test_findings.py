"""What an examination finds, for people and for programs."""

from __future__ import annotations

import pytest

from epochal.inspect.findings import Finding, in_words


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2e9, "2.0 GB"), (3.25e15, "3250.0 TB")],
)
def test_sizes_are_said_in_words(size: float, text: str) -> None:
    assert in_words(size) == text


def test_a_finding_can_be_read_by_programs() -> None:
    finding = Finding("clock", "warn", "is late", "set it")
    assert finding.to_json() == {
        "name": "clock",
        "level": "warn",
        "what": "is late",
        "hint": "set it",
    }
