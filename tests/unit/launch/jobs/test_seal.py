"""A seal proves that this user added a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.errors import RecordError
from epochal.launch.jobs.seal import is_sealed, seal_job

if TYPE_CHECKING:
    from pathlib import Path


def test_a_seal_holds_for_one_user_one_content_and_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "me"))
    file, copied = tmp_path / "1.json", tmp_path / "2.json"
    for one in (file, copied):
        one.write_text("a job")
    assert not is_sealed(file, "")
    seal = seal_job(file)
    assert seal == seal_job(file)
    assert is_sealed(file, seal)
    assert not is_sealed(copied, seal)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert not is_sealed(file, seal)
    assert seal_job(file) != seal
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "me"))
    file.write_text("another job")
    assert not is_sealed(file, seal)
    assert not is_sealed(tmp_path / "missing", seal)


def test_an_unusable_key_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "1.json"
    file.write_text("a job")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(file))
    with pytest.raises(RecordError, match="the job cannot be added: "):
        seal_job(file)
