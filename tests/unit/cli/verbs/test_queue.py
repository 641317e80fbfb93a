"""``epochal queue`` adds, shows and changes jobs; ``run --devices`` shows what it would start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from epochal.launch.queue.queue import Queue
from epochal.launch.queue.worker import QueueBacklog
from epochal.records.layout.process import host_name
from small_project import Command, run_folders, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCHAL_LEASES_DIR", str(tmp_path / "leases" / "here"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def jobs(shop: Path, epochal: Command) -> None:
    assert epochal("queue", "add", "config.yaml", "--variant", "base,hot").code == 0
    assert epochal("queue", "add", "config.yaml", "--after", "1", "--priority", "2").code == 0


def test_jobs_are_added_and_listed_with_what_they_wait_for(shop: Path, epochal: Command) -> None:
    assert (
        "the queue is empty; add jobs with: epochal queue add FILE" in epochal("queue", "list").out
    )
    done = epochal("queue", "add", "config.yaml", "--variant", "base,hot")
    assert done.out.splitlines() == [
        "added job 1: config.yaml",
        "added job 2: config.yaml (hot)",
        "next: epochal queue work",
    ]
    epochal("queue", "add", "config.yaml", "--after", "1", "--priority", "2")
    lines = epochal("queue", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["job", "3", "1", "2"]
    assert lines[1].endswith("job 1 is waiting")
    listed = json.loads(epochal("queue", "list", "--json").out)
    assert [(one["id"], one["obstacle"]) for one in listed] == [
        (3, "job 1 is waiting"),
        (1, None),
        (2, None),
    ]


def test_a_job_whose_worker_was_killed_is_not_shown_as_running(
    shop: Path, epochal: Command
) -> None:
    jobs(shop, epochal)
    taken = QueueBacklog(Queue(shop / "runs")).take()
    assert taken is not None
    assert taken.lock is not None
    line = epochal("queue", "list").out.splitlines()[1]
    assert line.split()[:3] == ["1", "config.yaml", "running"]
    assert "next" not in epochal("queue", "add", "config.yaml").out
    taken.lock.write({"pid": 2**30, "host": host_name(), "process": "gone"})
    line = epochal("queue", "list").out.splitlines()[1]
    assert line.split()[:3] == ["1", "config.yaml", "lost"]
    assert line.endswith("its worker ended; epochal queue work continues it")
    listed = json.loads(epochal("queue", "list", "--json").out)
    assert [one["id"] for one in listed if not one["has_worker"]] == [1]
    assert "next: epochal queue work" in epochal("queue", "add", "config.yaml").out
    taken.lock.release()


def test_jobs_are_moved_paused_and_removed(shop: Path, epochal: Command) -> None:
    jobs(shop, epochal)
    rows = {
        ("top", "2"): "job 2 starts next: config.yaml (hot)",
        ("pause", "1"): "job 1 is paused; running jobs continue",
        ("pause",): "the queue is paused; running jobs continue",
        ("unpause",): "the queue is no longer paused",
        ("unpause", "1"): "job 1 is no longer paused",
        ("remove", "1"): "job 1 is removed",
        ("drain",): "all workers end after their running jobs",
    }
    for words, text in rows.items():
        done = epochal("queue", *words)
        assert (done.code, done.out.strip()) == (0, text), words
    queue = Queue(shop / "runs")
    assert [(job.id, job.state) for job in queue.list_jobs()] == [
        (1, "removed"),
        (2, "waiting"),
        (3, "waiting"),
    ]
    queue.set_paused(True)
    for words in (("list",), ("work", "--devices", "cpu")):
        assert "the queue is paused: epochal queue unpause\n" in epochal("queue", *words).out, words


def test_titles_of_jobs_have_their_overrides(shop: Path, epochal: Command) -> None:
    words = ("config.yaml", "optim.lr=0.25", "extra.api_key=sk-1234567890abcdef1234567890abcdef")
    assert (
        "would add config.yaml optim.lr=0.25 extra"
        in epochal("queue", "add", *words, "--dry-run").out
    )
    done = epochal("queue", "add", *words)
    assert "added job 1: config.yaml optim.lr=0.25 extra.api_key=" in done.out
    listed = epochal("queue", "list").out
    assert "config.yaml optim.lr=0.25" in listed
    assert "1234567890" not in listed + done.out


def test_why_jobs_cannot_start_is_said(shop: Path, epochal: Command) -> None:
    jobs(shop, epochal)
    queue = Queue(shop / "runs")
    queue.update(
        1, ["waiting"], state="failed", error="torn", run_dir=str(shop / "runs/x"), ended=1.0
    )
    queue.remove(2)
    assert "  x: torn" in epochal("queue", "list").out
    assert "; it cannot start yet: job 1 failed" in epochal("queue", "top", "3").out
    assert epochal("queue", "work", "--devices", "cpu").out.splitlines() == [
        "0 jobs, 0 failed, 1 waiting",
        "job 3 cannot start: job 1 failed",
        "`epochal queue list` shows all jobs, `epochal queue remove JOB` removes one",
    ]
    queue.remove(3)
    epochal("queue", "add", "config.yaml")
    queue.get(4).file.unlink()
    done = epochal("queue", "work", "--devices", "cpu")
    assert done.out.splitlines()[0].startswith("job 4 was not started: ")
    assert (done.code, done.out.splitlines()[1]) == (74, "1 job, 1 failed")
    queue.set_paused(True)
    done = epochal("queue", "add", "config.yaml")
    assert "the queue is paused: epochal queue unpause" in done.out


def test_mistakes_add_nothing(shop: Path, epochal: Command) -> None:
    write(shop / "wrong.yaml", "optim: {typo: 1}\n")
    rows = {
        ("add", "wrong.yaml"): (78, "nothing was added"),
        ("add", "config.yaml", "--after", "5"): (74, "there is no job 5 in the queue"),
        ("add", "config.yaml", "--gpus", "1"): (78, "the pool gives each run its device"),
        ("add", "config.yaml", "--no-file"): (78, "cannot be resumed"),
        ("add", "config.yaml", "--retries", "-1"): (78, "cannot be -1"),
        ("top", "7"): (74, "there is no job 7 in the queue"),
        ("add", "missing.yaml"): (66, "no such file"),
    }
    for words, (code, text) in rows.items():
        done = epochal("queue", *words)
        assert text in done.err, words
        assert done.code == code, words
    assert epochal("queue", "fly").code == 2
    assert Queue(shop / "runs").list_jobs() == []
    jobs_dir = shop / "runs" / ".epochal" / "jobs"
    assert not jobs_dir.exists() or list(jobs_dir.iterdir()) == []


def test_dry_runs_print_what_would_start_where(shop: Path, epochal: Command) -> None:
    words = ("run", "config.yaml", "config.yaml", "--devices", "cpu", "--dry-run")
    lines = epochal(*words).out.splitlines()
    assert lines[0] == "1: config.yaml starts on cpu"
    assert lines[1] == f"  cd {shop}"
    assert lines[2].startswith("  CUDA_VISIBLE_DEVICES= ")
    assert lines[2].endswith("/1.json --device cpu")
    assert " -P -m epochal run-job " in lines[2]
    assert lines[3:] == [
        "2: config.yaml waits for a device",
        "2 runs, 1 at once; nothing was started",
    ]
    assert list((shop / "runs" / ".epochal" / "jobs").iterdir()) == []
    assert epochal("queue", "add", "config.yaml", "--dry-run").out == (
        "would add config.yaml, priority 0\n"
    )
    epochal("queue", "add", "config.yaml")
    shown = epochal("queue", "work", "--devices", "cpu", "--dry-run").out
    assert shown.startswith("1: config.yaml starts on cpu\n")
    assert [job.state for job in Queue(shop / "runs").list_jobs()] == ["waiting"]
    assert run_folders(shop) == []


def test_options_that_do_not_fit_a_pool_are_refused(shop: Path, epochal: Command) -> None:
    rows = {
        ("--devices", "9"): "there is no GPU '9'",
        ("--devices", "cpu", "--gpus", "1"): "the pool gives each run its devices",
        ("--devices", "cpu", "--keep-alive"): "restarts one run only",
        ("--per-device", "0"): "must be at least 1, got 0",
    }
    for words, text in rows.items():
        done = epochal("run", "config.yaml", *words)
        assert (done.code, text in done.err) == (78, True), (words, done.err)


def test_a_worker_without_jobs_ends(shop: Path, epochal: Command) -> None:
    done = epochal("queue", "work", "--devices", "cpu")
    assert (done.code, done.out) == (0, "0 jobs, 0 failed\n")
