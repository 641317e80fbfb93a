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
from resume import results_of
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

pytestmark = pytest.mark.timeout(900)


@dataclass
class Scene:
    """A project, the server that starts its runs, and the result of an undisturbed run."""

    folder: Path
    server: Server
    whole: dict[str, Any] = field(default_factory=dict)
    num_operations: int = 0
    seconds: float = 0.0

    def start(self, place: str, inject: dict[str, Any] | None = None) -> Ended:
        """Start a run in its own folder, or resume the one that is there."""
        words = ("run", "config.yaml", f"record.log_dir={place}/runs", "--device", "cpu")
        return self.server.start(*words, "--resume", "auto", inject=inject or {"signal": 0})

    def draw(self, dice: random.Random, number: int, step: int) -> dict[str, Any]:
        """A signal at a random operation or time of a run that resumes at ``step``."""
        # Few signals should arrive while the run starts.
        share = 0.12 + 0.88 * dice.random() * (1 - 0.75 * step / NUM_STEPS)
        if dice.random() < 0.5:
            return {"signal": number, "operation": int(share * self.num_operations)}
        return {"signal": number, "delay": share * self.seconds}

    def latest(self, place: str) -> RunRecord | None:
        """The newest run of a folder."""
        found = run_folders(self.folder / place)
        return read_run(found[-1]) if found else None


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = write_shop(tmp_path_factory.mktemp("killed") / "project")
    write(folder / "config.yaml", CONFIG)
    with Server(folder) as server:
        made = Scene(folder, server)
        made.start("rehearsal")  # imports what later runs need
        ended = made.start("whole")
        assert ended.code == 0, ended.text
        record = made.latest("whole")
        assert record is not None
        made.whole = results_of(record)
        made.num_operations, made.seconds = ended.num_operations, ended.seconds
        yield made


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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_runs_end_bit_equal(scene: Scene, seed: int, record_property: Count) -> None:
    check_kills(scene, seed, 24, record_property)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 110))
def test_runs_killed_a_thousand_times_end_bit_equal(
    scene: Scene, seed: int, record_property: Count
) -> None:
    check_kills(scene, seed, 100, record_property)


def preempt_until_finished(
    scene: Scene, place: str, dice: random.Random, limit: int
) -> tuple[int, int]:
    """Preempt a run up to ``limit`` times; no step may be lost, nor be recorded twice.

    Gives the number of preemptions, and of those after new steps.
    """
    count = saved = num_begun = 0
    before = None
    while True:
        inject = scene.draw(dice, signal.SIGTERM, saved) if count < limit else None
        ended = scene.start(place, inject)
        where = f"{inject}: {ended.code}\n{ended.text}"
        record = scene.latest(place)
        if record is None:  # there is not even a folder
            assert ended.code == 75, where
            count += 1
            continue
        is_same = before is not None and record.path == before.path
        if before is None or not is_same:
            assert saved == 0, f"started again; {where}"
        elif len(record.attempts) > len(before.attempts):
            assert record.attempts[-1].step == saved, where
        is_late = ended.code == -signal.SIGTERM  # the command was done, but not its process
        if ended.code == 0 or (is_late and record.summary.status == "finished"):
            break
        assert ended.code == 75, where
        assert record.summary.step == saved_step(record), where
        assert record.summary.status == "preempted", where
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


def check_preemptions(scene: Scene, seed: int, wanted: int, count: Count) -> None:
    dice = random.Random(seed)
    trials = begun = runs = 0
    while trials < wanted:
        limit = min(SIGNALS_PER_RUN, wanted - trials)
        found = preempt_until_finished(scene, f"preemptions-{seed}-{runs}", dice, limit)
        trials, begun, runs = trials + found[0], begun + found[1], runs + 1
    text = f"{trials} times exit 75, {begun} after new steps, 0 steps lost"
    count("counted", f"SIGTERM at random times, seed {seed}: {text}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_preempted_runs_lose_no_step(scene: Scene, seed: int, record_property: Count) -> None:
    check_preemptions(scene, seed, 16, record_property)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 104))
def test_runs_preempted_hundreds_of_times_lose_no_step(
    scene: Scene, seed: int, record_property: Count
) -> None:
    check_preemptions(scene, seed, 100, record_property)
