"""Tests of epochal.experiment.record.withheld_secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from canaries import TOKENS
from epochal.config import load
from epochal.experiment.record.withheld_secrets import (
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


def test_the_secrets_of_a_config_are_named_once(record: FakeRecord, tmp_path: Path) -> None:
    (line,) = describe_withheld_secrets(load(tmp_path / "x.yaml").root)
    assert line.startswith("the record omits secrets, here db.password.0, db.password.1; ")
    assert "abcdef" not in line


def test_a_key_that_holds_a_secret_is_withheld_too() -> None:
    (line,) = describe_withheld_secrets(load({"a": {TOKENS["github"]: 1}}).root)
    assert line.startswith("the record omits secrets, here a.")


def test_nothing_is_said_of_a_config_without_secrets(record: FakeRecord, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("env: [DB]\ndb: {token: '${env:DB}', num_tokens: 5}\n")
    assert describe_withheld_secrets(load(tmp_path / "x.yaml").root) == []


def test_secrets_are_read_again_from_the_config_of_the_run(
    record: FakeRecord, tmp_path: Path
) -> None:
    found = find_withheld_secrets(record, tmp_path / "kept.yaml", ())
    assert found == ['db.password.0="abcdef"', 'db.password.1="ghijkl"']


def test_what_was_given_again_is_not_looked_for(record: FakeRecord, tmp_path: Path) -> None:
    found = find_withheld_secrets(record, tmp_path / "kept.yaml", ["db.password.0=other"])
    assert found == ['db.password.1="ghijkl"']


@pytest.mark.parametrize("text", [None, "a: [", "db: {password: <redacted>}", "db: 5"])
def test_a_config_that_is_gone_or_another_one_gives_nothing(
    record: FakeRecord, tmp_path: Path, text: str | None
) -> None:
    (tmp_path / "x.yaml").unlink()
    if text is not None:
        (tmp_path / "x.yaml").write_text(text)
    assert find_withheld_secrets(record, tmp_path / "kept.yaml", ()) == []


def test_a_damaged_record_gives_nothing(tmp_path: Path, record: FakeRecord) -> None:
    assert find_withheld_secrets(FakeRecord({}), tmp_path / "kept.yaml", ()) == []
