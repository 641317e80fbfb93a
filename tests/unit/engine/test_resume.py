"""Tests of resuming from a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from engine.parts import EventRecorder, Sums, adder, fit, make_run
from epochal.engine import Hook, Run
from epochal.engine.interfaces.run import ResumePoint
from epochal.engine.resume import is_inside_epoch
from epochal.records.folder.checkpoint_manifests import CheckpointManifest
from resume import Notes, follow

if TYPE_CHECKING:
    from pathlib import Path


def build(setting: dict[str, Any], *hooks: object, **options: Any) -> Run:
    return make_run(
        Sums(12), adder(), hooks=hooks, setting={"writer": Notes()} | setting, for_="2ep", **options
    )


def point_of(state: dict[str, Any], path: Path, **facts: Any) -> ResumePoint:
    manifest = CheckpointManifest(path=path, files={}, step=state["data"]["step"])
    return ResumePoint(state=state, manifest=manifest, path=path, **facts)


class Listening(Hook):
    def __init__(self) -> None:
        self.heard: list[object] = []

    def run_start(self, run: Run) -> None:
        self.heard.append(("run_start", run.step, run.epoch))

    def checkpoint_loaded(self, run: Run, path: Path) -> None:
        torch.rand(5)  # which must not count
        self.heard.append((path, run.step, run.samples))


def test_events_of_a_run_that_resumes_inside_an_epoch(tmp_path: Path) -> None:
    state = follow(build).states[0]
    point = point_of(state, tmp_path)
    assert is_inside_epoch(point)
    recorder, listening = (
        EventRecorder("run_start", "epoch_start", "step_end", "eval_start"),
        Listening(),
    )
    run = build({"resume": point}, recorder, listening, eval_at_start=True)
    fit(run)
    assert listening.heard == [("run_start", 1, 0), (tmp_path, 1, 4)]
    assert recorder.entries[:4] == ["run_start", "epoch_start train", "step_end 2", "step_end 3"]
    assert recorder.entries[4:6] == ["epoch_start val", "eval_start val"][::-1]


def test_a_run_that_resumes_between_epochs_starts_the_next_one(tmp_path: Path) -> None:
    states = follow(build).states
    state = next(one for one in states if not one["data"]["is_in_epoch"])
    assert (state["data"]["step"], state["data"]["epoch"]) == (3, 1)
    recorder = EventRecorder("epoch_start", "step_end")
    recorder.on = ("train",)
    fit(build({"resume": point_of(state, tmp_path)}, recorder))
    assert recorder.entries == ["epoch_start train", "step_end 4", "step_end 5", "step_end 6"]


def test_a_resumed_run_that_had_reached_its_end_takes_no_step(tmp_path: Path) -> None:
    state = follow(build).states[-1]
    result = fit(build({"resume": point_of(state, tmp_path)}))
    assert (result.steps, result.epochs, result.reason) == (6, 2, "max_epochs")


class Stopping(Hook):
    def step_end(self, run: Run) -> None:
        if run.step == 2:
            run.stop("enough")


def test_a_stop_is_restored_unless_the_run_is_continued(tmp_path: Path) -> None:
    state = follow(lambda setting: build(setting, Stopping())).states[-1]
    kept = fit(build({"resume": point_of(state, tmp_path)}))
    assert (kept.steps, kept.reason, kept.status) == (2, "enough", "stopped")
    continued = fit(build({"resume": point_of(state, tmp_path, has_ended=True)}))
    assert (continued.steps, continued.reason) == (6, "max_epochs")


def test_a_resumed_run_counts_earlier_seconds(tmp_path: Path) -> None:
    state = follow(build).states[0]
    state["clock"] |= {"seconds": 1000.0, "spent": {"times": {"steps": 1001.0}}}
    result = fit(build({"resume": point_of(state, tmp_path)}, max_time="500s"))
    assert (result.steps, result.reason) == (1, "max_time")
    assert result.seconds > 1001
    assert result.times["steps"] == 1001
