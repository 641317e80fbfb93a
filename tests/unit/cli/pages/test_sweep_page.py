"""A sweep shows its trials, and a long one takes no longer per trial than a short one."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from epochal.cli.pages.sweep_page import SweepPage, describe_trial, print_sweep
from epochal.launch.pool.backlog import JobEnd, WaitingJob
from epochal.launch.pool.pool import Pool
from epochal.sweep.trials import rank_trials
from pooled import ScriptedHandle, make_leases
from swept import coordinator, end_job, finish, leave_run, new_sweep, work

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from epochal.launch.pool.executor import JobStart


class CountingExecutor:
    """Ends each trial at once; counts the function calls between one trial and the next."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self._count = 0

    def notice(self, frame: Any, event: str, argument: object) -> None:
        if event == "call" and "epochal" in frame.f_code.co_filename:
            self._count += 1

    def close(self) -> None:
        pass

    def submit(self, start: JobStart) -> ScriptedHandle:
        self.calls.append(self._count)
        sys.setprofile(None)
        value = 1.0 + start.job.choices["trial"]["number"]  # all places of the ranking stay taken
        leave_run(WaitingJob(key=0, job=start.job, file=start.file), [value])
        self._count = 0
        sys.setprofile(self.notice)
        return ScriptedHandle(0)


def test_the_work_per_trial_does_not_grow_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epochal.sweep.backlog._SUMMARY_SECONDS", 1e9)
    for is_terminal in (False, True):
        folder = new_sweep(tmp_path / str(is_terminal), "  method: random\n  trials: 14\n")
        executor = CountingExecutor()
        with coordinator(folder) as backlog, SweepPage(backlog) as page:
            monkeypatch.setattr(type(page._live), "is_shown", is_terminal)
            monkeypatch.setattr(type(page._live), "draw", lambda self, lines: list(lines))
            leases = make_leases(tmp_path / str(is_terminal))
            pool = Pool(backlog, executor, leases, show=page.show, tick_seconds=0.0)  # type: ignore[arg-type]
            try:
                pool.run()
            finally:
                sys.setprofile(None)
        assert len(executor.calls) == 14
        assert executor.calls[13] <= executor.calls[7] * 1.01, is_terminal


def test_the_ranking_of_a_running_sweep_is_that_of_all_trials(tmp_path: Path) -> None:
    rows = {
        "one": ("-val/loss", [5.0, 3.0, 9.0, 1.0, 4.0, 2.0, 8.0, 3.0]),
        "many": ("[-val/loss, +val/loss]", [5.0, 3.0, 9.0, 1.0]),
    }
    for name, (objective, values) in rows.items():
        section = f"  method: random\n  trials: 20\n  objective: {objective}\n"
        folder = new_sweep(tmp_path / name, section)
        with coordinator(folder) as backlog:
            page = SweepPage(backlog)
            for value in values:
                waiting = backlog.take()
                assert waiting is not None
                finish(backlog, waiting, value)
                expected = rank_trials(backlog.trials.values(), backlog.settings)
                found = page._ranking.update()
                assert found == expected[: len(found)], name
                assert len(found) == min(len(expected), 5), name
            folder.change(["sweep.repeats=2"])
            assert backlog.peek() is not None
            assert page._ranking.update() == []


def test_a_trial_with_a_failed_repeat_is_counted_once(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  method: random\n  trials: 1\n  repeats: 3\n")
    with coordinator(folder) as backlog:
        first = backlog.take()
        assert first is not None
        finish(backlog, first)
        others = [backlog.take(), backlog.take()]
        for waiting in others:
            assert waiting is not None
            path = leave_run(waiting, status="failed")
            end_job(backlog, waiting, JobEnd(code=1, run_dir=path))
        assert backlog.count_states() == Counter(failed=1)
        assert len(backlog.ended) == 1


def test_a_sweep_without_trials_left_says_how_to_add_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = new_sweep(tmp_path)
    hint = f"no trial is left; add some: epochal sweep {folder.id} sweep.trials=6"
    for is_expected in (False, True):
        with coordinator(folder) as backlog:
            work(backlog)
            print_sweep(backlog)
        assert (hint in capsys.readouterr().out) == is_expected


def test_a_trial_without_the_metric_of_the_sweep_says_so(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path)
    with coordinator(folder) as backlog:
        waiting = backlog.take()
        assert waiting is not None
        path = leave_run(waiting, ())
        end_job(backlog, waiting, JobEnd(code=0, run_dir=path))
        text = describe_trial(backlog.trials[0], backlog.settings)
    assert text.startswith("finished  trial 0: no value of val/loss (optim.lr="), text
