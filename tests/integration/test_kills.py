"""Runs that are killed or preempted at random times finish with the same bits."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from epochal.records import RunRecord, read_run
from epochal.records.folder.checkpoint_manifests import find_newest_checkpoint
from epochal.records.metrics.points import POINT_FIELDS
from killing import Ended, Server
from resume import RESULTS, results_of
from small_project import run_folders, write, write_shop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Count = Callable[[str, object], None]

CONFIG = """
tag: shop
task: {type: shop.parts.Points, batch_size: 5}
model: {type: shop.parts.Net}
optim: {type: AdamW, lr: 0.05}
train: {for: 3ep, eval_every: 4st}
monitor: +val/acc
average: {type: ema, decay: 0.9}
schedule: {type: StepLR, step_size: 4, gamma: 0.5}
log: {console_every: 0, record_every: 1st}
checkpoint: {every: 2st, keep_last: 2}
"""
NUM_STEPS = 15
SIGNALS_PER_RUN = 8
ENDS = {signal.SIGTERM: ("preempted", 75), signal.SIGINT: ("interrupted", 130)}

pytestmark = pytest.mark.timeout(900)


@dataclass
class Scene:
    """A project, the server that starts its runs, and the result of an undisturbed run."""

    folder: Path
    server: Server
    read: Callable[[RunRecord], dict[str, Any]] = results_of
    """Gives all results of a run as bits."""

    overrides: tuple[str, ...] = ()
    num_steps: int = NUM_STEPS
    whole: dict[str, Any] = field(default_factory=dict)
    num_operations: int = 0
    seconds: float = 0.0

    def start(self, place: str, inject: dict[str, Any] | None = None) -> Ended:
        """Start a run in its own folder, or resume the one that is there."""
        changes = (f"record.log_dir={self.folder / place}/runs", *self.overrides)
        words = ("run", "config.yaml", *changes, "--device", "cpu", "--resume", "auto")
        return self.server.start(*words, inject=inject or {"signal": 0})

    def run_whole(self) -> None:
        """Run once without a signal."""
        self.start("rehearsal")  # imports what later runs need
        ended = self.start("whole")
        assert ended.code == 0, ended.text
        record = self.latest("whole")
        assert record is not None
        self.whole = self.read(record)
        self.num_operations, self.seconds = ended.num_operations, ended.seconds

    def draw(self, dice: random.Random, number: int, step: int) -> dict[str, Any]:
        """A signal at a random operation or time of a run that resumes at ``step``."""
        share = self.draw_share(dice, step)
        if dice.random() < 0.5:
            return {"signal": number, "operation": int(share * self.num_operations)}
        return {"signal": number, "delay": share * self.seconds}

    def draw_share(self, dice: random.Random, step: int) -> float:
        """A random part of a run that resumes at ``step``; few are while it starts."""
        return 0.12 + 0.88 * dice.random() * (1 - 0.75 * step / self.num_steps)

    def latest(self, place: str) -> RunRecord | None:
        """The newest run of a folder."""
        found = self.runs(place)
        return read_run(found[-1]) if found else None

    def runs(self, place: str) -> list[Path]:
        """All run folders of a folder, without those of folds."""
        return [path for path in run_folders(self.folder / place) if path.parent.name != "folds"]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = write_shop(tmp_path_factory.mktemp("killed") / "project")
    write(folder / "config.yaml", CONFIG)
    with Server(folder) as server:
        made = Scene(folder, server)
        made.run_whole()
        yield made


@pytest.fixture(scope="module")
def folds(scene: Scene) -> Scene:
    """The same project, as a cross validation."""
    short = ("train.folds=2", "train.for=6st", "train.eval_every=4st")
    made = Scene(scene.folder / "folds", scene.server, results_of_folds, short, num_steps=12)
    made.run_whole()
    return made


READERS = """
from torch.utils.data import DataLoader
from shop.parts import Points

class Readers(Points):
    def __init__(self, *, batch_size: int) -> None:
        super().__init__()
        data = self.train_loader.dataset
        self.train_loader = DataLoader(data, batch_size, shuffle=True, num_workers=2)
        self.val_loader = DataLoader(data, batch_size=12, num_workers=1)
"""


@pytest.fixture(scope="module")
def readers(scene: Scene) -> Scene:
    """The same project, whose loaders have workers."""
    write(scene.folder / "shop" / "readers.py", READERS)
    changes = ("task.type=shop.readers.Readers",)
    made = Scene(scene.folder / "readers", scene.server, overrides=changes)
    made.run_whole()
    return made


def results_of_folds(record: RunRecord) -> dict[str, Any]:
    """The results of all folds, and the means with the points of the whole."""
    series = {name: record.series(name) for name in record.metric_names()}
    return {
        "folds": [results_of(fold) for fold in record.folds],
        "series": {name: (steps.tolist(), v.tobytes()) for name, (steps, v) in series.items()},
        "result": {name: record.result[name] for name in (*RESULTS, "spread")},
        "names": sorted(path.name for path in (record.path / "folds").iterdir()),
    }


def saved_step(record: RunRecord | None) -> int:
    """The step from which the run would resume; no checkpoint may be damaged."""
    if record is None:
        return 0
    newest, damaged = find_newest_checkpoint(record.path / "checkpoints")
    assert damaged == [], damaged
    return 0 if newest is None else newest.step


def kill_until_finished(scene: Scene, place: str, dice: random.Random, limit: int) -> int:
    """Kill a run up to ``limit`` times, then let it finish; gives the number of kills."""
    kills, saved = 0, 0
    while True:
        inject = scene.draw(dice, signal.SIGKILL, saved) if kills < limit else None
        before = scene.latest(place)
        ended = scene.start(place, inject)
        assert ended.code in (0, -signal.SIGKILL), f"{inject}: {ended.code}\n{ended.text}"
        record = scene.latest(place)
        if record is not None and before is not None and record.path == before.path:
            assert saved_step(record) >= saved, f"{inject}: a committed checkpoint was lost"
            if len(record.attempts) > len(before.attempts):
                assert record.attempts[-1].step == saved, f"{inject}: resumed elsewhere"
        saved = saved_step(record)
        if ended.code == 0:
            break
        kills += 1
    finished = [read_run(path) for path in run_folders(scene.folder / place)]
    finished = [one for one in finished if one.summary.status == "finished"]
    assert finished
    for one in finished:
        assert results_of(one) == scene.whole, f"{one.path} after {kills} kills, seed of {place}"
    return kills


def check_kills(scene: Scene, seed: int, wanted: int, count: Count) -> None:
    dice = random.Random(seed)
    kills = runs = 0
    while kills < wanted:
        limit = min(SIGNALS_PER_RUN, wanted - kills)
        kills += kill_until_finished(scene, f"kills-{seed}-{runs}", dice, limit)
        runs += 1
    count("counted", f"SIGKILL at random times, seed {seed}: {kills} kills, {runs} runs bit-equal")


@pytest.mark.long
def test_killed_runs_end_bit_equal(scene: Scene, record_property: Count) -> None:
    check_kills(scene, 0, 12, record_property)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 110))
def test_runs_killed_a_thousand_times_end_bit_equal(
    scene: Scene, seed: int, record_property: Count
) -> None:
    check_kills(scene, seed, 100, record_property)


def preempt_until_finished(
    scene: Scene, place: str, dice: random.Random, limit: int, sent: signal.Signals
) -> tuple[int, int]:
    """Preempt or interrupt a run up to ``limit`` times; no step may be lost or recorded twice.

    Gives the number of signals, and of those after new steps.
    """
    status, code = ENDS[sent]
    count = saved = num_begun = 0
    before = None
    while True:
        inject = scene.draw(dice, sent, saved) if count < limit else None
        ended = scene.start(place, inject)
        where = f"{inject}: {ended.code}\n{ended.text}"
        record = scene.latest(place)
        if record is None:  # there is not even a folder
            assert ended.code == code, where
            count += 1
            continue
        is_same = before is not None and record.path == before.path
        if before is None or not is_same:
            assert saved == 0, f"started again; {where}"
        elif len(record.attempts) > len(before.attempts):
            assert record.attempts[-1].step == saved, where
        # The run was done, but not its command or its process.
        is_late = ended.code == (code if sent == signal.SIGINT else -sent)
        if ended.code == 0 or (is_late and record.summary.status == "finished"):
            break
        assert ended.code == code, where
        assert record.summary.step == saved_step(record), where
        assert record.summary.status == status, where
        is_begun = record.summary.step > saved
        before, saved = record, saved_step(record)
        count, num_begun = count + 1, num_begun + is_begun
    assert results_of(record) == scene.whole
    assert taken_twice(record) == []
    return count, num_begun


def taken_twice(record: RunRecord) -> list[tuple[str, int]]:
    """Series and step of all points that several attempts recorded.

    Actions due at the step of a checkpoint may be repeated: an attempt that is preempted before its
    first step has done them, and the next one does them again.
    """
    lines = (record.path / "series.jsonl").read_text().splitlines()
    names = {line["id"]: line["name"] for line in map(json.loads, lines)}
    rows = np.fromfile(record.path / "metrics.bin", np.dtype(list(POINT_FIELDS)))
    begun_at = {attempt.attempt: attempt.step for attempt in record.attempts}
    taken = [row for row in rows if row["step"] > begun_at[int(row["attempt"])]]
    found = Counter((names[int(row["series"])], int(row["step"])) for row in taken)
    return [point for point, count in found.items() if count > 1]


def check_preemptions(
    scene: Scene, seed: int, wanted: int, count: Count, sent: signal.Signals
) -> None:
    dice = random.Random(seed)
    trials = begun = runs = 0
    while trials < wanted:
        limit = min(SIGNALS_PER_RUN, wanted - trials)
        found = preempt_until_finished(scene, f"{sent.name}-{seed}-{runs}", dice, limit, sent)
        trials, begun, runs = trials + found[0], begun + found[1], runs + 1
    text = f"{trials} times exit {ENDS[sent][1]}, {begun} after new steps, 0 steps lost"
    count("counted", f"{sent.name} at random times, seed {seed}: {text}")


@pytest.mark.long
@pytest.mark.parametrize("sent", ENDS)
def test_preempted_and_interrupted_runs_lose_no_step(
    scene: Scene, sent: signal.Signals, record_property: Count
) -> None:
    check_preemptions(scene, sent, 6, record_property, sent)


@pytest.mark.torture
@pytest.mark.parametrize("sent", ENDS)
@pytest.mark.parametrize("seed", range(100, 104))
def test_runs_preempted_and_interrupted_hundreds_of_times_lose_no_step(
    scene: Scene, seed: int, sent: signal.Signals, record_property: Count
) -> None:
    check_preemptions(scene, seed, 100, record_property, sent)


def check_double_interrupts(scene: Scene, seed: int, wanted: int, count: Count) -> None:
    """Press Ctrl-C twice at random times: the run resumes from its newest checkpoint."""
    dice = random.Random(seed)
    presses = runs = 0
    while presses < wanted:
        place = f"twice-{seed}-{runs}"
        for number in range(SIGNALS_PER_RUN + 1):
            saved = saved_step(scene.latest(place))
            at = int(scene.draw_share(dice, saved) * scene.num_operations)
            inject = {"signal": signal.SIGINT, "operation": at, "again": dice.randrange(1, 30)}
            ended = scene.start(place, inject if number < SIGNALS_PER_RUN else None)
            if ended.code == 0:
                break
            assert ended.code == 130, f"{inject}: {ended.code}\n{ended.text}"
            presses += 1
        record = scene.latest(place)
        assert record is not None
        assert results_of(record) == scene.whole, f"{record.path}, {inject}"
        runs += 1
    count("counted", f"Ctrl-C twice, seed {seed}: {presses} times, {runs} runs bit-equal")


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 104))
def test_runs_interrupted_twice_end_bit_equal(
    scene: Scene, seed: int, record_property: Count
) -> None:
    check_double_interrupts(scene, seed, 50, record_property)


def end_fold_until_finished(folds: Scene, place: str, dice: random.Random) -> Counter[int]:
    """End a cross validation by signals; gives how often each one did, before it finished."""
    counts: Counter[int] = Counter()
    while True:
        done = 0
        record = folds.latest(place)
        if record is not None:
            done = sum(max(saved_step(one), one.summary.step) for one in record.folds)
        sent = dice.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        inject = folds.draw(dice, sent, done) if counts.total() < SIGNALS_PER_RUN else None
        ended = folds.start(place, inject)
        if ended.code == 0:
            break
        expected = ENDS[sent][1] if sent in ENDS else -sent
        assert ended.code in (expected, -sent), f"{inject}: {ended.code}\n{ended.text}"
        counts[sent] += 1
        record = folds.latest(place)
        if record is not None and record.summary.status == "finished":  # the signal came late
            break
    for path in folds.runs(place):
        record = read_run(path)
        if record.summary.status == "finished":
            assert folds.read(record) == folds.whole, f"{path} after {dict(counts)}"
    return counts


def check_folds(folds: Scene, seed: int, wanted: int, count: Count) -> None:
    dice = random.Random(seed)
    ends: Counter[int] = Counter()
    runs = 0
    while ends.total() < wanted:
        ends += end_fold_until_finished(folds, f"folds-{seed}-{runs}", dice)
        runs += 1
    text = ", ".join(f"{number} {signal.Signals(sent).name}" for sent, number in ends.items())
    count("counted", f"signals in a cross validation, seed {seed}: {text}; {runs} bit-equal")


@pytest.mark.long
def test_ended_cross_validations_finish_bit_equal(folds: Scene, record_property: Count) -> None:
    check_folds(folds, 0, 6, record_property)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 104))
def test_cross_validations_ended_hundreds_of_times_finish_bit_equal(
    folds: Scene, seed: int, record_property: Count
) -> None:
    check_folds(folds, seed, 60, record_property)


@pytest.mark.torture
@pytest.mark.parametrize("part", range(8))
def test_cross_validation_killed_at_every_operation_finishes_bit_equal(
    folds: Scene, part: int, record_property: Count
) -> None:
    operations = range(part, folds.num_operations, 8)
    for at in operations:
        place = f"every-{at}"
        killed = folds.start(place, {"signal": signal.SIGKILL, "operation": at})
        assert killed.code in (0, -signal.SIGKILL), f"operation {at}: {killed.text}"
        ended = folds.start(place) if killed.code else killed
        record = folds.latest(place)
        assert ended.code == 0, f"operation {at}: {ended.text}"
        assert record is not None
        assert folds.read(record) == folds.whole, f"operation {at}"
    text = f"part {part}: {len(operations)} times, all bit-equal"
    record_property("counted", f"SIGKILL at every operation of a cross validation, {text}")


@pytest.mark.torture
@pytest.mark.parametrize("sent", ENDS)
@pytest.mark.parametrize("seed", range(100, 103))
def test_signals_to_the_whole_process_group_give_their_exit_codes(
    readers: Scene, seed: int, sent: signal.Signals, record_property: Count
) -> None:
    """Workers start and end in each epoch and evaluation, and get the signal, too."""
    dice = random.Random(seed)
    counts, runs = 0, 0
    while counts < 40:
        place = f"group-{sent.name}-{seed}-{runs}"
        for number in range(SIGNALS_PER_RUN + 1):
            delay = readers.draw_share(dice, saved_step(readers.latest(place))) * readers.seconds
            inject = {"signal": sent, "delay": delay, "is_group": True}
            ended = readers.start(place, inject if number < SIGNALS_PER_RUN else None)
            if ended.code in (0, -sent):
                break
            assert ended.code == ENDS[sent][1], f"{inject}: {ended.code}\n{ended.text}"
            counts += 1
        record = readers.latest(place)
        assert record is not None
        if record.summary.status == "finished":
            assert readers.read(record) == readers.whole, f"{record.path}, {inject}"
        runs += 1
    text = f"{counts} times exit {ENDS[sent][1]}, {runs} runs bit-equal"
    record_property("counted", f"{sent.name} to workers, too, seed {seed}: {text}")
