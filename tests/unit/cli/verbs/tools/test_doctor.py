"""Tests of ``epochal doctor``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.cli.verbs.tools import doctor
from epochal.doctor.diagnostic import Diagnostic

if TYPE_CHECKING:
    from small_project import Command


def test_ordinary_folder_passes_all_checks(tmp_path: Path, epochal: Command) -> None:
    done = epochal("doctor", tmp_path / "runs", "--kills", 1)
    assert done.code == 0, done.out
    assert f"checking {tmp_path} and this machine" in done.out
    for name in ("versions", "cores", "file system", "clock", "kill", "full disk", "torch"):
        assert any(
            line.startswith(("ok", "warn")) and name in line for line in done.out.splitlines()
        )
    assert "runs are safe here" in done.out
    assert not list(tmp_path.iterdir())


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Diagnostic]:
    """Findings that replace those of real checks."""
    findings = [Diagnostic("kill", "ok", "none lost")]
    monkeypatch.setattr(doctor, "_run_checks", lambda *_: iter(findings))
    return findings


def test_findings_are_printed_as_json(
    tmp_path: Path, epochal: Command, found: list[Diagnostic]
) -> None:
    done = epochal("doctor", tmp_path, "--json")
    assert (done.code, json.loads(done.out)) == (0, [found[0].to_json()])


def test_failure_has_an_exit_code_and_a_hint(
    tmp_path: Path, epochal: Command, found: list[Diagnostic]
) -> None:
    found.append(Diagnostic("full disk", "fail", "a checkpoint was lost", "go elsewhere"))
    done = epochal("doctor", tmp_path)
    assert done.code == 1
    assert (
        "FAIL  full disk      a checkpoint was lost\n                     go elsewhere" in done.out
    )
    assert "1 of 2 failed" in done.out
    assert epochal("doctor", tmp_path, "--json").code == 1


def test_a_warning_is_no_failure(tmp_path: Path, epochal: Command, found: list[Diagnostic]) -> None:
    found.append(Diagnostic("room", "warn", "1 GB free", "make room"))
    done = epochal("doctor", tmp_path)
    assert done.code == 0
    assert "runs are safe here; 1 of 2 could be improved" in done.out


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, epochal: Command, found: list[Diagnostic], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    done = epochal("doctor", tmp_path)
    assert done.code == 74
    assert f"{tmp_path}: cannot write there: permission denied" in done.err


def test_check_that_cannot_run_is_a_failure() -> None:
    def refuse() -> Diagnostic:
        raise OSError("no process")

    finding = doctor._check_safely("kill", refuse)
    assert (finding.level, finding.what) == ("fail", "the check could not run: no process")
