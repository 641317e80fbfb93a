"""Runs that roll back after a nonfinite gradient, and resume at every step bit for bit."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import DataLoader, IterableDataset

from cells import CELLS, build, image
from epochal.checkpoint import read_checkpoint
from epochal.engine import Hook, Train
from epochal.engine.execute import execute
from epochal.engine.interfaces.options import CheckpointOptions
from epochal.engine.interfaces.run import ResumePoint
from epochal.engine.process.signals import PREEMPTED
from epochal.hooks.checkpointing import Checkpointing
from epochal.records import read_run
from epochal.records.folder.checkpoint_manifests import find_checkpoints, find_newest_checkpoint
from killing import Server
from resume import Asking, Notes, Outcome, results_of
from small_project import Command, forgetting, run_folders, write, write_shop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from epochal.engine import Run
    from epochal.records.folder.checkpoint_manifests import CheckpointManifest

    Count = Callable[[str, object], None]
    Batches = tuple[tuple[int, int], ...]

pytestmark = [pytest.mark.timeout(900)]

# Their optimizer evaluates the loss itself, so that no update can be skipped.
REFUSED = ("lbfgs", "stages with schedules")
FEW = ["all at once", "augmented", "plateau", "one cycle", "average"]
SOME = [*FEW, "accumulation", "epochs of samples", "evaluations mid-epoch", "momentum", "clipped"]

PLACES: dict[str, Batches] = {
    "mid-epoch": ((1, 1),),
    "first of the run": ((0, 0),),
    "last of an epoch": ((0, 3),),
    "first of an epoch": ((1, 0),),
    "two in a row": ((1, 1), (1, 2)),
    "twice": ((0, 2), (2, 1)),
    "last of the run": ((2, 3),),
}


class Counted(IterableDataset[Any]):
    """A stream that saves and restores its position."""

    def __init__(self) -> None:
        self.next = 0

    def __iter__(self) -> Iterator[Any]:
        while self.next < 14:
            self.next += 1
            yield image(self.next - 1)
        self.next = 0

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.next = state["next"]


class Rolling(Notes):
    """Keeps the points without discarded ones."""

    def __init__(self, points: list[tuple[int, str, str]] | None = None) -> None:
        super().__init__()
        self.points = list(points or [])
        self.kinds: list[str] = []
        self.number = 0

    def event(self, kind: str, **data: object) -> None:
        self.kinds.append(kind)

    def go_back(self, *, points: Any, **_: object) -> int:
        del self.points[points:]
        self.number += 1
        return self.number


class Leaving(Hook):
    """Preempts the run after so many steps of this process."""

    def __init__(self, after: int) -> None:
        self.left = after

    def step_end(self, run: Run) -> None:
        self.left -= 1
        if self.left == 0:
            run.stop(PREEMPTED, status=PREEMPTED)
            run.request_save(PREEMPTED)


def poisoned(
    folder: Path | None, setting: dict[str, Any], *, bad: Batches = ((1, 1),), **cell: Any
) -> Run:
    """A run of a cell whose loss is nonfinite in some steps, given by epoch and index."""
    engine = {"on_nonfinite": "rollback", **cell.pop("engine", {})}
    if engine["on_nonfinite"] == "skip":
        engine["on_nonfinite"] = "rollback"
    loader, options = cell.pop("loader", None), cell.pop("checkpoint", {})
    run = build(setting | {"checkpoint_dir": folder}, engine=engine, **cell)
    plain = run.task.batch_forward

    def batch_forward(model: Any, batch: Any) -> dict[str, Any]:
        out = plain(model, batch)
        step = run.epoch, run.feed.position // run.options.optim.accumulate
        is_bad = run.split == "train" and step in bad
        return out | {"mean": out["mean"] * float("nan")} if is_bad else out

    run.task.batch_forward = batch_forward
    if loader is not None:
        run.task.train_loader = loader()
    options = CheckpointOptions(**{"every": "2st", "keep_last": None, **options})
    run.events.add_hook(Checkpointing(options))
    return run


def execute_run(make: Callable[..., Run], notes: Rolling, **setting: Any) -> tuple[Outcome, Any]:
    asking = Asking()
    run = make({"writer": notes, **setting})
    run.events.add_hook(asking)
    result = execute(run, Train(), raise_errors=True)
    return Outcome(asking.digests, notes.points), result


def resume_at(
    manifest: CheckpointManifest, make: Callable[..., Run], points: list[tuple[int, str, str]]
) -> tuple[Outcome, Any]:
    state, _ = read_checkpoint(manifest.path)
    notes = Rolling(points[: state["log"]["points"]])
    notes.number = manifest.attempt + 10
    facts = {"attempt": notes.number}
    point = ResumePoint(state=state, manifest=manifest, path=manifest.path)
    return execute_run(make, notes, resume=point, facts=facts)


@pytest.mark.parametrize("cell", SOME)
def test_rolled_back_run_resumes_exactly_from_every_checkpoint(
    tmp_path: Path, cell: str, record_property: Count
) -> None:
    count = check_every_checkpoint(tmp_path, cell, PLACES["mid-epoch"])
    record_property("counted", f"{cell}: rolled back, resumed at {count} positions, bit-equal")


@pytest.mark.torture
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("cell", [name for name in CELLS if name not in REFUSED])
def test_rolled_back_runs_of_every_kind_resume_exactly(
    tmp_path: Path, cell: str, place: str, record_property: Count
) -> None:
    # Stages may cut epochs short, and runs may stop early.
    count = check_every_checkpoint(tmp_path, cell, PLACES[place], is_met=False)
    text = f"{cell}, {place}: rolled back, resumed at {count} positions, bit-equal"
    record_property("counted", text)


@pytest.mark.parametrize(
    "places",
    [
        ("first of the run", "first of an epoch", "last of the run"),
        ("last of an epoch", "two in a row"),
    ],
)
def test_rollback_works_wherever_the_bad_batches_are(
    tmp_path: Path, places: tuple[str, ...]
) -> None:
    bad = tuple(batch for place in places for batch in PLACES[place])
    check_every_checkpoint(tmp_path, "all at once", bad)


def check_every_checkpoint(tmp_path: Path, cell: str, bad: Batches, *, is_met: bool = True) -> int:
    folder = tmp_path / cell
    notes = Rolling()
    whole, result = execute_run(partial(poisoned, folder, bad=bad, **CELLS[cell]), notes)
    assert result.reason != "diverged"
    assert notes.kinds.count("rollback") == len(bad) or not is_met
    found = find_checkpoints(folder)
    for number, manifest in enumerate(found):
        part = tmp_path / f"{cell} {number}"
        for one in found[: number + 1]:
            shutil.copytree(one.path, part / one.name)
        make = partial(poisoned, part, bad=bad, **CELLS[cell])
        resumed, _ = resume_at(find_checkpoints(part)[-1], make, whole.points)
        assert resumed.digests == whole.digests, f"resumed at {manifest.name}"
        assert resumed.points == whole.points, f"resumed at {manifest.name}"
    return len(found)


@pytest.mark.parametrize("cell", ["all at once", "plateau"])
def test_rolled_back_run_can_be_preempted_after_any_step(
    tmp_path: Path, cell: str, record_property: Count
) -> None:
    checkpoint = {"every": "3st", "keep_last": 1, "keep_best": 0}
    settings = {**CELLS[cell], "checkpoint": checkpoint, "bad": ((0, 2), (1, 3))}
    whole, _ = execute_run(partial(poisoned, tmp_path / "whole", **settings), Rolling())
    count = 0
    for after in range(1, 30):
        folder, notes = tmp_path / str(after), Rolling()

        def make(setting: dict[str, Any], *, folder: Path = folder, after: int = after) -> Run:
            run = poisoned(folder, setting, **settings)
            run.events.add_hook(Leaving(after))
            return run

        first, result = execute_run(make, notes)
        if result.status != "preempted":
            assert first == whole
            break
        newest, damaged = find_newest_checkpoint(folder)
        assert newest is not None
        assert not damaged
        resumed, _ = resume_at(newest, partial(poisoned, folder, **settings), notes.points)
        assert resumed.digests == whole.digests, f"preempted after {after} steps"
        assert resumed.points == whole.points, f"preempted after {after} steps"
        count += 1
    assert count > 8
    record_property("counted", f"{cell}: preempted after each of {count} steps, bit-equal")


@pytest.mark.parametrize("place", ["mid-epoch", "first of the run", "two in a row"])
def test_stream_with_its_own_position_continues_after_the_bad_batch(
    tmp_path: Path, place: str
) -> None:
    cell = {"loader": lambda: DataLoader(Counted(), batch_size=4), "bad": PLACES[place]}
    folder = tmp_path / "whole"
    whole, _ = execute_run(partial(poisoned, folder, **cell), Rolling())
    found = find_checkpoints(folder)
    for number in range(len(found)):
        part = tmp_path / str(number)
        for one in found[: number + 1]:
            shutil.copytree(one.path, part / one.name)
        newest = find_checkpoints(part)[-1]
        resumed, _ = resume_at(newest, partial(poisoned, part, **cell), whole.points)
        assert resumed == whole, f"resumed at {newest.name}"


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_prefetched_batches_of_workers_do_not_change_a_rollback(tmp_path: Path) -> None:
    settings = {**CELLS["augmented"], "bad": ((0, 2), (1, 1))}
    alone, _ = execute_run(partial(poisoned, tmp_path / "0", **settings), Rolling())
    for workers in (1, 2):
        make = partial(poisoned, tmp_path / str(workers), num_workers=workers, **settings)
        assert execute_run(make, Rolling())[0] == alone


@pytest.mark.parametrize("cell", FEW)
def test_rollback_from_memory_equals_rollback_from_files(tmp_path: Path, cell: str) -> None:
    settings = {**CELLS[cell], "bad": ((0, 2), (1, 1))}
    with_files, _ = execute_run(partial(poisoned, tmp_path, **settings), Rolling())
    in_memory, _ = execute_run(partial(poisoned, None, **settings), Rolling())
    assert in_memory == with_files


def test_rollback_equals_a_resume_in_another_process(tmp_path: Path) -> None:
    """Check that nothing of the discarded steps is left in the run."""
    settings: dict[str, Any] = {**CELLS["all at once"], "for_": "2ep"}
    whole, _ = execute_run(partial(poisoned, tmp_path / "a", bad=((0, 2),), **settings), Rolling())
    execute_run(partial(poisoned, tmp_path / "b", bad=(), **settings), Rolling())
    (at_two,) = [one for one in find_checkpoints(tmp_path / "b") if one.step == 2]
    state, manifest = read_checkpoint(at_two.path)
    # Two microbatches make a step; the third step was skipped.
    state["data"] = state["data"] | {"position": 6}
    point = ResumePoint(state=state, manifest=manifest, path=at_two.path)
    make = partial(poisoned, tmp_path / "c", bad=(), **settings)
    by_hand, _ = execute_run(make, Rolling(), resume=point)
    for part in ("model", "optim", "average", "rate", "updater", "random", "metrics", "monitor"):
        assert by_hand.digests[part] == whole.digests[part]


ROTTEN = """
import os, signal
from pathlib import Path

import epochal as ep
from epochal import durable
from epochal.records.folder.writer import RunWriter
from shop.parts import Points

plain = RunWriter.go_back
operations = durable.system.operations


def go_back(self, **facts):
    kill_at = Path("kill_at")
    when = kill_at.read_text() if kill_at.exists() else ""
    if when:
        kill_at.write_text("")  # once
    if when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    if when.isdigit():
        count_down(int(when))
    number = plain(self, **facts)
    durable.system.operations = operations
    if when:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def count_down(left):
    def guard(real):
        def call(*args):
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args)
        return call
    names = durable.Operations.__dataclass_fields__
    made = durable.Operations(**{name: guard(getattr(operations, name)) for name in names})
    durable.system.operations = made


RunWriter.go_back = go_back


class Rotten(Points):
    def batch_loss(self, out, batch):
        loss, count = super().batch_loss(out, batch)["loss"]
        run = ep.current_run()
        if run.split == "train" and (run.epoch, run.batch_index) in {(0, 4), (2, 1)}:
            loss = loss * float("nan")
        return {"loss": (loss, count)}
"""

CONFIG = """
tag: rotten
task: {type: shop.rotten.Rotten}
model: {type: shop.parts.Net}
optim: {type: AdamW, lr: 0.05}
train: {for: 3ep, eval_every: 4st}
monitor: +val/acc
average: {type: ema, decay: 0.9}
schedule: {type: StepLR, step_size: 4, gamma: 0.5}
engine: {on_nonfinite: rollback}
log: {console_every: 0, record_every: 1st}
checkpoint: {every: 3st}
"""


def rotten_shop(folder: Path) -> Path:
    write_shop(folder)
    write(folder / "shop" / "rotten.py", ROTTEN)
    write(folder / "config.yaml", CONFIG)
    return folder


@pytest.mark.long
def test_kill_during_a_rollback_loses_nothing(tmp_path: Path, record_property: Count) -> None:
    project = rotten_shop(tmp_path / "project")
    words = ("run", "config.yaml", "--device", "cpu", "--resume", "auto")
    kills = 0
    with Server(project) as server:
        assert server.start(*words, "record.log_dir=whole").code == 0
        (whole,) = (path.parent for path in (project / "whole").rglob("status.json"))
        expected = results_of(read_run(whole))
        assert len(read_run(whole).attempts) == 3
        for instant in ["before", "after", *map(str, range(20))]:
            (project / "kill_at").write_text(instant)
            place = f"record.log_dir=killed-{instant}"
            assert server.start(*words, place).code == -9, instant
            (killed,) = (
                path.parent for path in (project / f"killed-{instant}").rglob("status.json")
            )
            is_begun = len(read_run(killed).attempts) > 1
            assert server.start(*words, place).code == 0
            assert results_of(read_run(killed)) == expected, f"killed at {instant}"
            kills += 1
            if instant.isdigit() and is_begun and int(instant) > 3:
                break
    assert kills > 5
    record_property("counted", f"killed at {kills} instants of going back, bit-equal")


def test_record_shows_each_point_once_and_reports_the_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochal: Command
) -> None:
    project = rotten_shop(tmp_path / "project")
    monkeypatch.chdir(project)
    with forgetting(tmp_path), monkeypatch.context():
        from epochal.records.folder.writer import RunWriter

        plain = RunWriter.go_back
        try:
            done = epochal("run", "config.yaml", "--device", "cpu")
        finally:
            RunWriter.go_back = plain  # type: ignore[method-assign]
        assert done.code == 0, done.err
        (folder,) = run_folders(project)
        record = read_run(folder)
        steps, _ = record.series("train/loss")
        assert steps.tolist() == list(range(1, len(steps) + 1))
        assert [one.cause for one in record.attempts] == ["started", "rollback", "rollback"]
        assert [one.checkpoint for one in record.attempts] == ["", "rotten-4", "rotten-12"]
        assert record.attempts[1].code == record.attempts[0].code
        kinds = [one["kind"] for one in record.events]
        assert kinds.count("nonfinite") >= 2
        assert kinds.count("rollback") == 2
        shown = epochal("show", folder).out
        assert "attempt  1: rolled back to rotten-4, step 4, " in shown
        assert "resumed" not in epochal("runs").out
