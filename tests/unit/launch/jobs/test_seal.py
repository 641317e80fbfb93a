"""A seal proves that this user wrote a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.errors import RecordError
from epochal.launch.jobs.seal import is_sealed, seal_job

if TYPE_CHECKING:
    from pathlib import Path


def test_a_seal_holds_for_one_user_and_one_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "me"))
    file = tmp_path / "1.json"
    file.write_text("a job")
    assert not is_sealed(file, "")
    seal = seal_job(file)
    assert seal == seal_job(file)
    assert is_sealed(file, seal)
    assert (tmp_path / "me" / "epochal" / "queue.key").stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert not is_sealed(file, seal)
    assert seal_job(file) != seal
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "me"))
    file.write_text("another job")
    assert not is_sealed(file, seal)
    assert not is_sealed(tmp_path / "missing", seal)


def test_an_unusable_key_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "1.json"
    file.write_text("a job")
    monkeypatch.setenv("XDG_STATE_HOME", str(file))
    with pytest.raises(RecordError, match="the key of the queue cannot be used"):
        seal_job(file)
    key = tmp_path / "state" / "epochal" / "queue.key"
    key.parent.mkdir(parents=True)
    key.write_bytes(b"short")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(RecordError, match="is damaged"):
        seal_job(file)
