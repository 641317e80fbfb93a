"""Tests of the options of ``epochal run --keep-alive``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from epochal.launch import start_at_boot, supervisor
from small_project import Command, tree

PROGRAM = [sys.executable, "-m", "epochal"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of the supervisor, which is not started."""
    asked: dict[str, Any] = {}

    def supervise(commands: supervisor.SupervisedCommands, file: object, **options: object) -> int:
        asked.update(commands=commands, file=file, **options)
        return 7

    monkeypatch.setattr(supervisor, "supervise", supervise)
    return asked


def test_supervisor_starts_and_resumes_the_typed_command(
    shop: Path, epochal: Command, asked: dict[str, Any]
) -> None:
    words = ["--device", "cpu", "optim.lr=0.3", "--debug"]
    own = ["--keep-alive", "--restarts", "3", "--from", "best"]
    assert epochal("run", "config.yaml", *own, *words).code == 7
    assert asked["commands"].start == [*PROGRAM, "run", "config.yaml", *words]
    assert asked["limit"] == 3
    resumed = asked["commands"].resume(Path("runs/a"))
    assert resumed == [
        *PROGRAM, "resume", "runs/a", "--trust", "--from", "best", "--device", "cpu", "--debug"
    ]  # fmt: skip


def test_options_may_be_written_with_an_equals_sign(
    shop: Path, epochal: Command, asked: dict[str, Any]
) -> None:
    assert epochal("run", "config.yaml", "--keep-alive", "--restarts=0", "--from=last").code == 7
    assert asked["commands"].start == [*PROGRAM, "run", "config.yaml"]
    resumed = asked["commands"].resume(Path("a"))
    assert resumed == [*PROGRAM, "resume", "a", "--trust", "--from", "last"]


def test_typed_secrets_are_passed_again_on_resume(
    shop: Path, epochal: Command, asked: dict[str, Any]
) -> None:
    epochal("run", "config.yaml", "--keep-alive", "optim.lr=0.3", "desc=api_key=abcdef")
    resumed = asked["commands"].resume(Path("a"))
    assert resumed == [*PROGRAM, "resume", "a", "desc=api_key=abcdef", "--trust"]


def test_options_that_contradict_keep_alive_are_refused(shop: Path, epochal: Command) -> None:
    for words, message in [
        (["--keep-alive", "config.yaml"], "restarts one run only"),
        (["--keep-alive", "--variant", "all"], "restarts one run only"),
        (["--keep-alive", "--no-file"], "a run without a record cannot be resumed"),
        (["--keep-alive", "--dry-run"], "--dry-run shows what --install would write"),
        (["--keep-alive", "--restarts", "-1"], "--restarts cannot be -1"),
        (["--install"], "--install: needs --keep-alive"),
        (["--dry-run"], "--dry-run: needs --keep-alive"),
    ]:
        done = epochal("run", "config.yaml", *words)
        assert done.code == 78, words
        assert message in done.err, words


def test_configs_are_checked_before_the_supervisor_starts(
    shop: Path, epochal: Command, asked: dict[str, Any]
) -> None:
    assert epochal("run", "config.yaml", "optim.lrr=1", "--keep-alive").code == 78
    assert not asked


def test_unfinished_run_is_continued(shop: Path, epochal: Command, asked: dict[str, Any]) -> None:
    words = ("run", "config.yaml", "--keep-alive")
    epochal(*words)
    asked["file"].create([])
    asked["file"].run_file.write_text(str(shop))
    assert f"keep-alive: continuing {shop}" in epochal(*words).err


def test_reboot_starts_no_finished_run_again(
    shop: Path, epochal: Command, asked: dict[str, Any]
) -> None:
    done = epochal("run", "config.yaml", "--keep-alive", "--again")
    assert (done.code, asked) == (0, {})
    assert "nothing left to do" in done.err


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[start_at_boot.BootJob]:
    """The jobs to install, which are not installed."""
    jobs: list[start_at_boot.BootJob] = []
    plan = start_at_boot.Installation(
        "crontab", "your crontab", "@reboot it", "crontab -e", "by hand"
    )
    monkeypatch.setattr(start_at_boot, "plan_installation", lambda job: jobs.append(job) or plan)
    monkeypatch.setattr(start_at_boot, "install", lambda job, plan: jobs.append(job))
    return jobs


def test_a_dry_run_shows_what_would_be_installed(
    shop: Path, epochal: Command, written: list[start_at_boot.BootJob], asked: dict[str, Any]
) -> None:
    before = tree(shop)
    done = epochal("run", "config.yaml", "--keep-alive", "--install", "--dry-run")
    assert (done.code, asked, len(written)) == (0, {}, 1)
    assert "would write to your crontab:\n\n@reboot it" in done.out
    assert tree(shop) == before


def test_installed_job_continues_the_run_of_the_command(
    shop: Path, epochal: Command, written: list[start_at_boot.BootJob], asked: dict[str, Any]
) -> None:
    done = epochal("run", "config.yaml", "--keep-alive", "--install", "--restarts", "3")
    assert done.code == 7
    assert "remove it with: crontab -e" in done.out
    job = written[0]
    words = ["run", "config.yaml", "--keep-alive", "--restarts", "3", "--again"]
    assert list(job.command) == [*PROGRAM, *words]
    assert job.dir == shop
    assert job.name == f"epochal-{asked['file'].path.stem}"
    assert asked["file"].exists
    # The installed job uses the same file as this command.
    epochal(*words)
    assert asked["file"].exists
