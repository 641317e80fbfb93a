"""SIGKILL while a run logs loses nothing acknowledged and leaves nothing torn."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from epochal.records.metrics.points import read_json_lines, read_metric_points

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SERIES = 10
FORKS = """
import os, sys
from pathlib import Path
from epochal.records import RunFolder, RunWriter

def live(attempt):
    writer = RunWriter(RunFolder(Path(sys.argv[1])), attempt=attempt)
    for step in range(10**9):
        writer.log({f"m{i}": attempt + step / 1000 + i for i in range(10)}, step)
        os.write(1, b"%d\\n" % step)
        if step % 8 == 0:
            writer.event("note", step=step)
            os.write(1, b"event %d\\n" % step)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        live(int(line))
    os.write(1, b"child %d\\n" % child)
    os.waitpid(child, 0)
    os.write(1, b"dead\\n")
"""
"""Forks a process for every line; it logs until it is killed, and prints what it has logged."""


def kill_often(folder: Path, kills: int, *, seed: int) -> dict[int, tuple[list[int], list[int]]]:
    """Kill processes that log into one folder; gives what each one printed."""
    choose = random.Random(seed)
    said: dict[int, tuple[list[int], list[int]]] = {}
    words = [sys.executable, "-c", FORKS, str(folder)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for attempt in range(kills):
            server.stdin.write(f"{attempt}\n")
            server.stdin.flush()
            said[attempt] = kill_one(server.stdout, choose)
    assert server.returncode == 0
    return said


def kill_one(lines: Iterable[str], choose: random.Random) -> tuple[list[int], list[int]]:
    """Kill the next process after some steps; gives the steps and events it printed."""
    steps: list[int] = []
    events: list[int] = []
    wanted, child = choose.choice([0, 1, 2, 10, 60]), 0
    for line in lines:
        if line == "dead\n":
            break
        word, _, number = line.rpartition(" ")
        if word == "child":
            child = int(number)
        else:
            (events if word else steps).append(int(number))
        if child and len(steps) >= wanted:
            time.sleep(choose.random() * 0.003)  # at any moment, not between two calls
            os.kill(child, signal.SIGKILL)
            wanted = sys.maxsize
    return steps, events


def count_lost(folder: Path, said: dict[int, tuple[list[int], list[int]]]) -> int:
    """The number of acknowledged points and events that are missing."""
    points = read_metric_points(folder)
    assert points.bad_rows == 0  # a reader may meet an incomplete last row, but no damaged one
    names = {name: number for number, name in points.names.items()}
    lines, damaged = read_json_lines(folder / "events.jsonl")
    assert damaged == 0
    events = {(line.get("attempt", 0), line["step"]) for line in lines}
    lost = 0
    for attempt, (steps, notes) in said.items():
        rows = points.rows[points.rows["attempt"] == attempt]
        for i in range(SERIES):
            own = rows[rows["series"] == names.get(f"m{i}", -1)]
            assert own["step"].tolist() == list(range(len(own)))  # none twice, none missing
            assert (own["value"] == attempt + own["step"] / 1000 + i).all()
            lost += max(0, len(steps) - len(own))
        lost += sum((attempt, step) not in events for step in notes)
    return lost


def test_kill_loses_no_acknowledged_point_or_event(tmp_path: Path) -> None:
    said = kill_often(tmp_path, 40, seed=6)
    assert sum(len(steps) for steps, _ in said.values()) > 100
    assert count_lost(tmp_path, said) == 0


@pytest.mark.torture
def test_five_hundred_kills_lose_nothing_acknowledged(tmp_path: Path) -> None:
    seed = int(time.time())
    said = kill_often(tmp_path, 500, seed=seed)
    acknowledged = SERIES * sum(len(steps) for steps, _ in said.values())
    events = sum(len(notes) for _, notes in said.values())
    lost = count_lost(tmp_path, said)
    total = len(read_metric_points(tmp_path).rows)
    print(f"\n500 kills: {acknowledged} points and {events} events acknowledged, {lost} lost")  # noqa: T201 - for people
    assert lost == 0, f"seed {seed}"
    assert total >= acknowledged
    assert np.all(read_metric_points(tmp_path).rows["time"] > 0)
