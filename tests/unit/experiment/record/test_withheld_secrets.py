"""Tests of secrets that a record omits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from canaries import TOKENS
from epochal.config import load
from epochal.experiment.record.open_record import (
    describe_withheld_secrets,
    find_withheld_secrets,
)

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class FakeRecord:
    run: dict[str, Any]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRecord:
    monkeypatch.setenv("DB", "from the environment")
    (tmp_path / "x.yaml").write_text(
        "env: [DB]\ndb: {password: [abcdef, ghijkl], token: '${env:DB}', port: 5}\n"
    )
    (tmp_path / "kept.yaml").write_text(
        "env: [DB]\ndb: {password: [<redacted>, <redacted>], token: '${env:DB}', port: 5}\n"
    )
    return FakeRecord({"config_path": "x.yaml", "cwd": str(tmp_path), "overrides": ["db.port=6"]})


def test_secrets_in_values_and_keys_are_named_once(record: FakeRecord, tmp_path: Path) -> None:
    (line,) = describe_withheld_secrets(load(tmp_path / "x.yaml").root)
    assert line.startswith("the record omits secrets, here db.password.0, db.password.1; ")
    assert "abcdef" not in line
    (line,) = describe_withheld_secrets(load({"a": {TOKENS["github"]: 1}}).root)
    assert line.startswith("the record omits secrets, here a.")


def test_a_config_without_secrets_needs_no_note(record: FakeRecord, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("env: [DB]\ndb: {token: '${env:DB}', num_tokens: 5}\n")
    assert describe_withheld_secrets(load(tmp_path / "x.yaml").root) == []


def test_secrets_are_read_again_from_the_config_of_the_run(
    record: FakeRecord, tmp_path: Path
) -> None:
    found = find_withheld_secrets(record, tmp_path / "kept.yaml", ())
    assert found == ['db.password.0="abcdef"', 'db.password.1="ghijkl"']


def test_secrets_among_the_overrides_are_not_searched(record: FakeRecord, tmp_path: Path) -> None:
    found = find_withheld_secrets(record, tmp_path / "kept.yaml", ["db.password.0=other"])
    assert found == ['db.password.1="ghijkl"']


def test_a_missing_or_changed_config_and_a_damaged_record_give_nothing(
    record: FakeRecord, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.yaml"
    assert find_withheld_secrets(FakeRecord({}), kept, ()) == []
    for text in ("a: [", "db: {password: <redacted>}", "db: 5"):
        (tmp_path / "x.yaml").write_text(text)
        assert find_withheld_secrets(record, kept, ()) == [], text
    (tmp_path / "x.yaml").unlink()
    assert find_withheld_secrets(record, kept, ()) == []
