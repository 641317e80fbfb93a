"""Trials are judged by the records of their runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from epochal.sweep.trials import Trial, TrialRun, rank_trials, to_plain
from swept import leave_run, new_sweep

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.sweep.settings import SweepSettings
    from epochal.sweep.sweep_folder import SweepFolder


def trial_of(folder: SweepFolder, number: int, *runs: dict[str, Any]) -> Trial:
    settings = folder.read_settings()
    trial = Trial(number, {"optim.lr": 0.5})
    for repeat, run in enumerate(runs):
        facts = {"sweep": folder.id, "number": number, "repeat": repeat, "values": trial.values}
        waiting = folder.write_job(folder.read_base(), facts)
        if run:
            leave_run(waiting, **run)
        one = TrialRun(waiting)
        one.read(settings)
        trial.runs.append(one)
    return trial


def test_the_state_of_a_trial_is_read_from_its_record(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path)
    rows: list[tuple[str, dict[str, Any]]] = [
        ("waiting", {}),
        ("waiting", {"status": "running"}),
        ("waiting", {"status": "preempted"}),
        ("finished", {"status": "finished"}),
        ("finished", {"status": "stopped", "reason": "early stopping"}),
        ("pruned", {"status": "stopped", "reason": "pruned (asha: rank 3 of 3 at evaluation 1)"}),
        ("failed", {"status": "failed", "error": "ValueError", "message": "no"}),
    ]
    for number, (state, run) in enumerate(rows):
        assert trial_of(folder, number, run).state == state, run


def test_the_objective_is_the_best_or_the_last_value(tmp_path: Path) -> None:
    rows = {"best": 0.5, "last": 0.7}
    for at, expected in rows.items():
        section = f"  objective: {{metric: val/loss, mode: min, at: {at}}}\n"
        folder = new_sweep(tmp_path / at, section)
        trial = trial_of(folder, 0, {"values": [0.9, 0.5, 0.7]})
        assert trial.get_objectives(folder.read_settings()) == (expected,), at


def test_repeats_count_by_their_mean(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  repeats: 3\n")
    settings = folder.read_settings()
    trial = trial_of(folder, 0, *({"values": [value]} for value in (1.0, 2.0, 6.0)))
    assert trial.get_objectives(settings) == (3.0,)
    assert math.isclose(trial.get_deviation(settings) or 0, math.sqrt(7))
    assert to_plain(trial, settings) == {
        "number": 0,
        "state": "finished",
        "val/loss": 3.0,
        "optim.lr": 0.5,
    }


def test_folds_count_by_their_mean(tmp_path: Path) -> None:
    rows = {"best": 0.6, "last": 0.7}
    for at, expected in rows.items():
        section = f"  objective: {{metric: val/loss, mode: min, at: {at}}}\n"
        section += "  constraints: [val/loss <= 0.75]\n"
        folder = new_sweep(tmp_path / at, section)
        settings = folder.read_settings()
        facts = {"sweep": folder.id, "number": 0, "repeat": 0, "values": {"optim.lr": 0.5}}
        waiting = folder.write_job(folder.read_base(), facts)
        parent = leave_run(waiting, [0.5, 0.9])  # the last value of each fold
        (parent / "folds").mkdir()
        for name, values in {"1": [0.4, 0.5], "2": [0.8, 0.9]}.items():
            leave_run(waiting, values, is_reported=False).rename(parent / "folds" / name)
        run = TrialRun(waiting)
        run.read(settings)
        trial = Trial(0, {"optim.lr": 0.5}, [run])
        (found,) = trial.get_objectives(settings) or (math.nan,)
        assert math.isclose(found, expected), at
        assert trial.get_violation(settings) == 0


def test_a_trial_without_a_finite_value_has_no_objective(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path)
    settings = folder.read_settings()
    rows: list[dict[str, Any]] = [
        {"values": [math.nan]},
        {"values": []},
        {"values": [math.inf]},
        {"metric": "other"},
        {"status": "failed"},
        {"status": "running"},
    ]
    for number, run in enumerate(rows):
        assert trial_of(folder, number, run).get_objectives(settings) is None, run


def test_trials_are_ranked_by_objective_and_constraints(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  constraints: [val/loss >= 0.2]\n")
    values = {0: 0.5, 1: 0.1, 2: 0.3, 3: math.nan}
    trials = [trial_of(folder, number, {"values": [value]}) for number, value in values.items()]
    assert [one.number for one in rank_trials(trials, folder.read_settings())] == [2, 0]


def test_several_objectives_keep_what_nothing_dominates(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path, "  objective: [-val/loss, +val/acc]\n")
    settings = folder.read_settings()
    points = [(0.5, 0.5), (0.4, 0.4), (0.6, 0.4), (0.5, 0.5)]
    trials = [_made_up(number, point, settings) for number, point in enumerate(points)]
    assert [one.number for one in rank_trials(trials, settings)] == [0, 1, 3]


def _made_up(number: int, point: tuple[float, ...], settings: SweepSettings) -> Trial:
    run = TrialRun(None, state="finished", curves=tuple((value,) for value in point))  # type: ignore[arg-type]
    return Trial(number, {}, [run])
