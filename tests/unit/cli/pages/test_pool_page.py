"""A pool shows a table on a terminal, and lines elsewhere."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

from epochal.cli.pages.pool_page import PoolPage, count_failed, describe_end, name_end, print_ends
from epochal.launch.pool.backlog import JobEnd, JobList
from epochal.launch.pool.pool import Pool
from pooled import ScriptedExecutor, make_leases, waiting_jobs

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def write_run(folder: Path, status: str, step: int = 7, **result: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"monitor": "+val/acc"}))
    (folder / "status.json").write_text(json.dumps({"status": status, "step": step}))
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def run_pool(tmp_path: Path, codes: dict[int, int | None], count: int = 2) -> JobList:
    jobs = waiting_jobs(tmp_path / "jobs", count)
    backlog = JobList(jobs)
    with PoolPage(jobs) as page:

        def show(pool: Pool) -> None:
            page.show(pool)
            if any(entry.waiting.key == 2 for entry in pool.running):
                pool.advance("stopping")

        leases = make_leases(tmp_path)
        Pool(backlog, ScriptedExecutor(codes), leases, show=show, tick_seconds=0.001).run()
    return backlog


def test_without_a_terminal_each_start_and_end_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_pool(tmp_path, {1: 0, 2: None}, count=3)
    lines = capsys.readouterr().out.splitlines()
    starts = [line.split(" after")[0] for line in lines]
    assert starts == [
        "started   1 of 3: 1.yaml on cpu",
        "finished  1 of 3: 1.yaml",
        "started   2 of 3: 2.yaml on cpu",
        "the running jobs save and end; Ctrl-C again kills them",
        "preempted 2 of 3: 2.yaml",
    ]


def test_a_low_terminal_shows_the_running_jobs_and_those_around_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    for name, value in {"TERM": "xterm", "COLUMNS": "120", "LINES": "11"}.items():
        monkeypatch.setenv(name, value)
    jobs = waiting_jobs(tmp_path / "jobs", 20)
    drawn: list[str] = []
    with PoolPage(jobs) as page:

        def show(pool: Pool) -> None:
            page.show(pool)
            if any(entry.waiting.key == 9 for entry in pool.running):
                drawn.append(screen.getvalue())
                pool.advance("stopping")
            screen.truncate(0)

        codes = dict.fromkeys(range(1, 9), 0) | {9: None}
        leases = make_leases(tmp_path)
        pool = Pool(JobList(jobs), ScriptedExecutor(codes), leases, show=show, tick_seconds=0.001)
        pool.run()
    rows = [line.split()[:3] for line in drawn[0].splitlines() if ".yaml" in line]
    assert rows == [
        *(["7", "7.yaml", "finished"], ["8", "8.yaml", "finished"]),
        *(["9", "9.yaml", "running"], ["10", "10.yaml", "waiting"]),
        *(["11", "11.yaml", "waiting"], ["12", "12.yaml", "waiting"]),
    ]


def test_a_terminal_shows_a_table_of_all_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    run_pool(tmp_path, {1: 0, 2: None}, count=3)
    text = screen.getvalue()
    assert "failed" not in text  # the second run was saved, and can be continued
    for part in (
        "experiment",
        "3  3.yaml      waiting",
        "1 running, 1 waiting, 1 ended",
        "Ctrl-C: finish the running jobs, and start no more",
        "the running jobs save and end; Ctrl-C again kills them",
    ):
        assert part in text, part


def test_ends_are_named_and_described_by_their_record(tmp_path: Path) -> None:
    (job,) = waiting_jobs(tmp_path / "jobs", 1)
    job.log.write_text("warning\nModuleNotFoundError: no module\n\n")
    metrics = {"train/loss": 1.0, "val/loss": 0.5, "val/acc": 0.75}
    finished = write_run(tmp_path / "a", "finished", metrics=metrics)
    failed = write_run(tmp_path / "b", "failed", exception_type="ValueError", message="torn\nrow")
    running = write_run(tmp_path / "c", "running")
    preempted = write_run(tmp_path / "d", "preempted")
    early = write_run(tmp_path / "e", "preempted", step=0)
    rows = {
        (0, finished): ("finished", "val/acc 0.75, val/loss 0.5"),
        (1, failed): ("failed", "ValueError: torn"),
        (75, preempted): ("preempted", "saved at step 7"),
        (75, early): ("preempted", "ended before its first step"),
        (-9, running): ("killed", "killed by signal 9"),
        (1, None): ("failed", "ModuleNotFoundError: no module"),
        (75, None): ("preempted", "ModuleNotFoundError: no module"),
        (0, None): ("finished", ""),
    }
    for (code, folder), expected in rows.items():
        end = JobEnd(code=code, run_dir=folder)
        assert (name_end(end), describe_end(job, end)) == expected, (code, folder)


def test_results_are_printed_in_the_order_of_submission(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = waiting_jobs(tmp_path / "jobs", 3)
    jobs[1].log.write_text("no such module\n")
    print_ends(jobs, {2: JobEnd(code=1), 1: JobEnd(code=0)})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines[2:5]] == [
        ["1", "1.yaml", "finished"],
        ["2", "2.yaml", "failed", "no"],
        ["3", "3.yaml", "not", "started"],
    ]
    assert lines[5] == f"output of 2: {jobs[1].log}"
    assert lines[6] == "3 runs: 1 finished, 1 failed, 1 not started"


def test_the_command_that_continues_a_preempted_run_is_not_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    run_dir = write_run(tmp_path / "a", "preempted")
    (job,) = waiting_jobs(tmp_path / "jobs", 1)
    print_ends([job], {1: JobEnd(code=75, run_dir=run_dir)})
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [f"continue 1: epochal resume {run_dir.name}", "1 run: 1 preempted"]


def test_a_pool_without_a_free_device_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held = make_leases(tmp_path).acquire()
    assert held is not None
    jobs = waiting_jobs(tmp_path / "jobs", 1)
    ticks: list[Pool] = []
    with PoolPage(jobs) as page:

        def show(pool: Pool) -> None:
            page.show(pool)
            ticks.append(pool)
            if len(ticks) == 3:
                held.locks[0].release()

        leases = make_leases(tmp_path)
        Pool(JobList(jobs), ScriptedExecutor(), leases, show=show, tick_seconds=0.001).run()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["waiting for a device: cpu (in use)", "started   1 of 1: 1.yaml on cpu"]
    assert lines[2].startswith("finished  1 of 1: 1.yaml after")


def test_jobs_that_saved_and_wait_did_not_fail() -> None:
    assert count_failed([0, 1, -9, 75, 130, 79]) == 3
