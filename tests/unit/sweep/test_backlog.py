"""A sweep gives trials to a pool, and survives a crash of its process at any point."""

from __future__ import annotations

import logging
import random
from math import log10
from typing import TYPE_CHECKING

from epochal.launch.pool.backlog import JobEnd, WaitingJob
from epochal.launch.pool.devices import DeviceRequest
from epochal.launch.pool.executor import Executor, JobHandle, JobStart
from epochal.launch.pool.pool import Pool
from epochal.records.folder.folder import Parent
from epochal.records.layout.stop_request import read_stop_request, write_stop_request
from epochal.sweep.backlog import MAX_STARTS, SweepBacklog
from pooled import ScriptedHandle, make_leases
from swept import coordinator, end_job, finish, leave_run, new_sweep, work

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from epochal.sweep.sweep_folder import SweepFolder

PREEMPTED, CRASHED, BAD_CONFIG = 75, 1, 2


def values_of(folder: SweepFolder) -> list[float]:
    return [one.job.choices["trial"]["values"]["optim.lr"] for one in folder.iter_jobs()]


def test_a_sweep_runs_its_trials_and_is_done(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path)
    with coordinator(folder) as backlog:
        assert backlog.count_waiting() == 3
        assert [one["number"] for one in work(backlog)] == [0, 1, 2]
        assert backlog.is_done()
        assert backlog.count_waiting() == 0
        assert {one.state for one in backlog.trials.values()} == {"finished"}


def test_trials_ask_for_the_devices_of_the_sweep(tmp_path: Path) -> None:
    backlog = SweepBacklog(new_sweep(tmp_path, choices={"nproc": 2}), preferred="cuda:1")
    request = DeviceRequest(preferred="cuda:1", num_processes=2)
    assert backlog.peek() == request
    waiting = backlog.take(request)
    assert waiting is not None
    assert waiting.request.num_processes == 2


def test_a_crash_at_any_point_neither_loses_nor_doubles_a_trial(tmp_path: Path) -> None:
    """The process of the sweep and those of its trials die together, at random moments."""
    for method in ("random", "quasi-random", "tpe"):
        section = f"  method: {method}\n  trials: 12\n"
        calm = new_sweep(tmp_path / method / "calm", section)
        with coordinator(calm) as backlog:
            work(backlog)
        folder = new_sweep(tmp_path / method / "stormy", section)
        generator = random.Random(method)
        ended: list[int] = []
        for _ in range(200):
            with coordinator(folder) as backlog:
                while (waiting := backlog.take()) is not None:
                    facts = waiting.job.choices["trial"]
                    crash = generator.choice(("none", "start", "folder", "training", "record"))
                    if crash == "start":
                        break
                    status = "running" if crash in ("folder", "training") else "finished"
                    value = log10(facts["values"]["optim.lr"]) ** 2
                    if waiting.resume is None:
                        path = leave_run(waiting, [value], status, is_reported=crash != "folder")
                    else:
                        path = waiting.resume
                        (path / "result.json").write_text('{"status": "finished"}')
                        text = (path / "status.json").read_text()
                        (path / "status.json").write_text(text.replace("running", status))
                    if status == "finished":
                        ended.append(facts["number"])
                    if crash != "none":
                        break
                    end_job(backlog, waiting, JobEnd(code=0, run_dir=path))
                else:
                    break
        assert sorted(ended) == list(range(12)), method
        assert len(list(folder.iter_jobs())) == 12, method
        # One trial at a time is told before the next is proposed, so the proposals are the same.
        assert values_of(folder) == values_of(calm), method


def test_a_trial_whose_process_still_ends_is_not_started_again(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  method: random\n  trials: 1\n")
    first = SweepBacklog(folder)
    waiting = first.take()
    assert waiting is not None
    second = SweepBacklog(folder)  # the first process was killed, that of the trial ends slowly
    assert second.take() is None
    assert not second.is_done()
    leave_run(waiting)
    assert waiting.lock is not None
    waiting.lock.release()
    assert second.take() is None
    assert second.is_done()
    assert second.trials[0].state == "finished"


def test_a_preempted_trial_is_resumed_and_one_without_config_starts_again(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  method: random\n  trials: 1\n")
    with coordinator(folder) as backlog:
        waiting = backlog.take()
        assert waiting is not None
        path = leave_run(waiting, status="preempted")
        end_job(backlog, waiting, JobEnd(code=PREEMPTED, run_dir=path))
        again = backlog.take()
        assert again is not None
        assert (again.resume, again.parent) == (path, None)
        (path / "config" / "expanded.json").unlink()
        end_job(backlog, again, JobEnd(code=PREEMPTED, run_dir=path))
        third = backlog.take()
        assert third is not None
        assert (third.resume, third.parent) == (None, Parent(path.name, "retried"))
        finish(backlog, third)
        assert backlog.is_done()


def test_a_killed_trial_starts_again_a_few_times(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  method: random\n  trials: 1\n")
    with coordinator(folder) as backlog:
        for _ in range(MAX_STARTS):
            waiting = backlog.take()
            assert waiting is not None
            end_job(backlog, waiting, JobEnd(code=-9))
        assert backlog.is_done()
        assert (backlog.trials[0].state, backlog.trials[0].error) == (
            "failed",
            "ended with code -9",
        )


def test_a_mistake_fails_at_once_and_failures_in_a_row_end_the_sweep(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  method: random\n  trials: 9\n  max_failures: 2\n")
    with coordinator(folder) as backlog:
        work(backlog, 1)
        for _ in range(2):
            waiting = backlog.take()
            assert waiting is not None
            end_job(backlog, waiting, JobEnd(code=BAD_CONFIG))
        assert backlog.take() is None
        assert backlog.is_done()
        assert backlog.stop_reason == "the last 2 trials failed: ended with code 2"


def test_a_target_ends_the_sweep(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  method: random\n  trials: 9\n  target: 0.5\n")
    with coordinator(folder) as backlog:
        for value in (0.9, 0.4):
            waiting = backlog.take()
            assert waiting is not None
            finish(backlog, waiting, value)
        assert backlog.is_done()
        assert backlog.stop_reason == "trial 1 reached 0.4"


def test_repeats_follow_a_good_first_run_with_other_seeds(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  method: random\n  trials: 2\n  repeats: 3\n")
    with coordinator(folder) as backlog:
        first = backlog.take()
        assert first is not None
        leave_run(first, status="failed")
        end_job(backlog, first, JobEnd(code=CRASHED, run_dir=backlog.trials[0].runs[0].path))
        done = work(backlog)
    assert [(one["number"], one["repeat"]) for one in done] == [(1, 0), (1, 1), (1, 2)]
    assert [one["values"]["seed"] for one in done] == [7, 8, 9]
    assert len({one["values"]["optim.lr"] for one in done}) == 1
    assert "seed" not in backlog.trials[1].values


def test_changes_of_a_running_sweep_are_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = new_sweep(tmp_path, "  method: random\n  trials: 1\n")
    with coordinator(folder) as backlog, caplog.at_level(logging.INFO):
        work(backlog)
        assert backlog.is_done()
        folder.change(["sweep.trials=2", "sweep.space.model.width=[8]"])
        done = work(backlog)
        assert [one["values"]["model.width"] for one in done] == [8]
        folder.change(["sweep.repeats=2"])
        assert [(one["number"], one["repeat"]) for one in work(backlog)] == [(0, 1), (1, 1)]
        assert "continues with its changed settings" in caplog.text


def test_a_bad_trial_is_asked_to_stop_and_counts_as_pruned(tmp_path: Path) -> None:
    section = "  method: random\n  trials: 3\n  prune: {type: asha, factor: 2}\n"
    folder = new_sweep(tmp_path, section)
    with coordinator(folder) as backlog:
        jobs = [backlog.take() for _ in range(3)]
        paths = []
        for job, value in zip(jobs, (0.5, 0.9, 0.1), strict=True):
            assert job is not None
            paths.append(leave_run(job, [value], "running"))
        assert list(backlog.find_unwanted()) == [0, 1000]
        assert read_stop_request(paths[1]) == "pruned (asha: rank 3 of 3 at evaluation 1)"
        assert read_stop_request(paths[2]) == ""
        assert jobs[1] is not None
        end_job(backlog, jobs[1], JobEnd(code=PREEMPTED, run_dir=paths[1], was_stopped=True))
        assert backlog.trials[1].state == "pruned"
    with coordinator(folder) as backlog:  # also after a crash
        assert [one.state for one in backlog.trials.values()] == ["pruned", "pruned", "waiting"]


def test_a_grid_ends_after_its_last_combination(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  method: grid\n", space="  space: {optim.lr: [1, 2, 4]}\n")
    for _ in range(2):
        with coordinator(folder) as backlog:
            work(backlog, 2)
    assert backlog.is_done()
    assert values_of(folder) == [1, 2, 4]


class TrainingExecutor(Executor):
    """Trains each trial at once."""

    def describe(self, start: JobStart) -> str:
        return ""

    def submit(self, start: JobStart) -> JobHandle:
        leave_run(WaitingJob(key=0, job=start.job, file=start.file))
        return ScriptedHandle(0)

    def close(self) -> None:
        pass


def test_a_pool_runs_a_sweep(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  method: random\n  trials: 4\n")
    with coordinator(folder) as backlog:
        leases = make_leases(tmp_path, per_device=2)
        Pool(backlog, TrainingExecutor(), leases, tick_seconds=0.001).run()
        assert [one.state for one in backlog.trials.values()] == ["finished"] * 4


def test_a_sweep_that_is_asked_to_stop_is_continued_later(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  method: random\n  trials: 3\n")
    with coordinator(folder) as backlog:
        waiting = backlog.take()
        assert waiting is not None
        write_stop_request(folder.path, "stop requested")
        assert backlog.peek() is None
        assert backlog.find_unwanted() == [waiting.key]
        path = leave_run(waiting, status="preempted")
        end_job(backlog, waiting, JobEnd(code=PREEMPTED, run_dir=path, was_stopped=True))
        assert backlog.is_done()
        assert backlog.trials[0].state == "waiting"
    with coordinator(folder) as backlog:
        again = backlog.take()
        assert again is not None
        assert again.resume == path


def test_a_trial_that_a_user_stops_counts_as_pruned(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  method: random\n  trials: 1\n")
    with coordinator(folder) as backlog:
        waiting = backlog.take()
        assert waiting is not None
        finish(backlog, waiting, 0.5, status="stopped", reason="stop requested: enough")
        assert backlog.trials[0].state == "pruned"
