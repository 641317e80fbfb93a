"""Save a run at every boundary, resume it from each of them, and compare bit for bit.

``follow`` trains once and keeps the state at each boundary; ``resume`` builds the same run again
and continues from one of them; ``assert_same`` compares their results::

    whole = follow(build)
    for state in whole.states:
        assert_same(whole, resume(build, state), state)

``build`` makes a new run that shares no part with another one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from epochal.checkpoint import (
    deserialize_state,
    load_weights,
    read_checkpoint,
    snapshot_to_host,
)
from epochal.engine import Hook, Run, Train
from epochal.engine.execute import execute
from epochal.engine.interfaces.run import ResumePoint
from epochal.engine.state.run_state import collect_state
from epochal.engine.state.saver import Saver
from epochal.records import NullWriter
from epochal.records.folder.checkpoint_manifests import CheckpointManifest, find_newest_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from epochal.records import RunRecord

    Build = Callable[[dict[str, Any]], Run]

LEFT_OUT = ("clock", "stop", "log", "plan", "attributes", "choices")
"""Parts that depend on the time or on the number of resumes: the last three steps of a run are not
captured."""

RESULTS = ("metrics", "best", "steps", "epochs", "samples", "status", "reason")


class Notes(NullWriter):
    """A writer that keeps every point as bits."""

    def __init__(self) -> None:
        self.points: list[tuple[int, str, str]] = []

    @property
    def num_points(self) -> int:
        return len(self.points)

    def log(self, points: Mapping[str, float], step: int, **_: Any) -> None:
        self.points += [(step, name, float(value).hex()) for name, value in points.items()]

    def sync(self) -> None:
        pass


class Keeper:
    """A saver that keeps the state of every boundary in memory, serialized as in a file."""

    is_writing = False

    __slots__ = ("kept", "saved_at")

    def __init__(self) -> None:
        self.saved_at = None
        self.kept: list[dict[str, Any]] = []

    def report_finished_write(self, run: Run) -> None:
        pass

    def save(self, run: Run, reason: str) -> None:
        run.meter.deliver()
        taken = snapshot_to_host(collect_state(run))
        self.kept.append(deserialize_state(taken.plain, taken.tensors))


class Asking(Hook):
    """Requests a save after every step, and keeps digests of the final state."""

    priority = 20_000

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}

    def step_end(self, run: Run) -> None:
        if isinstance(run.find_part(Saver), Keeper):
            run.request_save("asked")

    def run_end(self, run: Run) -> None:
        run.meter.deliver()
        state = collect_state(run)
        self.digests = {part: digest(tree) for part, tree in state.items() if part not in LEFT_OUT}


@dataclass
class Outcome:
    """The result of a run."""

    digests: dict[str, str]
    """Digests of the final state, by part."""

    points: list[tuple[int, str, str]]
    """Every recorded point, as bits."""

    states: list[dict[str, Any]] = field(default_factory=list)
    """The state at every boundary."""


def follow(build: Build) -> Outcome:
    """Train to the end and save at every boundary."""
    keeper, asking, notes = Keeper(), Asking(), Notes()
    run = build({"writer": notes})
    run.events.add_hook(asking)
    run.set_part(Saver, keeper)  # type: ignore[arg-type]  # it has what the engine uses
    execute(run, Train(), raise_errors=True)
    return Outcome(asking.digests, notes.points, keeper.kept)


def resume(build: Build, state: dict[str, Any]) -> Outcome:
    """Build the same run again and continue from a state."""
    asking, notes = Asking(), Notes()
    run = build({"writer": notes, "resume": point_of(state)})
    run.events.add_hook(asking)
    execute(run, Train(), raise_errors=True)
    return Outcome(asking.digests, notes.points)


def point_of(state: dict[str, Any]) -> ResumePoint:
    """The point from which a saved state is resumed."""
    data = state["data"]
    manifest = CheckpointManifest(path=Path(), files={}, step=data["step"], epoch=data["epoch"])
    return ResumePoint(state=state, manifest=manifest, path=Path())


def assert_same(whole: Outcome, resumed: Outcome, state: dict[str, Any]) -> None:
    """Compare final states, and the records after the checkpoint."""
    where = {name: state["data"][name] for name in ("step", "epoch", "is_in_epoch")}
    differing = [part for part, one in whole.digests.items() if resumed.digests[part] != one]
    assert not differing, f"resumed at {where}: other {differing}"
    later = whole.points[state["log"]["points"] :]
    assert resumed.points == later, f"resumed at {where}: other records"


def assert_resumes_everywhere(build: Build) -> int:
    """Resume at every boundary of a run; gives their number."""
    whole = follow(build)
    for state in whole.states:
        assert_same(whole, resume(build, state), state)
    return len(whole.states)


def results_of(record: RunRecord) -> dict[str, Any]:
    """All results of a recorded run as bits: newest state, final weights, series, result."""
    folder = record.path / "checkpoints"
    newest, damaged = find_newest_checkpoint(folder)
    assert newest is not None
    assert damaged == []
    state, _ = read_checkpoint(newest.path)
    weights = {path.name: load_weights(path) for path in folder.glob("final*.safetensors")}
    series = {name: record.series(name) for name in record.metric_names()}
    return {
        "state": {part: digest(tree) for part, tree in state.items() if part not in LEFT_OUT},
        "weights": {name: digest(found) for name, found in weights.items()},
        "series": {name: (steps.tolist(), v.tobytes()) for name, (steps, v) in series.items()},
        "result": {name: record.result[name] for name in RESULTS},
    }


def digest(tree: object) -> str:
    """A hash that is equal for equal bits."""
    found = hashlib.sha256()
    _feed(found.update, tree)
    return found.hexdigest()[:16]


def _feed(take: Callable[[bytes], object], value: Any) -> None:
    take(type(value).__name__.encode())
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous()
        take(f"{value.dtype}{tuple(value.shape)}".encode())
        take(plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            take(repr(key).encode())
            _feed(take, value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(take, item)
    elif isinstance(value, float):
        take(value.hex().encode())
    else:
        take(value.tobytes() if hasattr(value, "tobytes") else repr(value).encode())
