"""What an examination finds, for people and for programs."""

from __future__ import annotations

from epochal.inspect.findings import Finding


def test_a_finding_can_be_read_by_programs() -> None:
    finding = Finding("clock", "warn", "is late", "set it")
    assert finding.to_json() == {
        "name": "clock",
        "level": "warn",
        "what": "is late",
        "hint": "set it",
    }
