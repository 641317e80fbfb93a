"""The process of a sweep is killed at random moments: no trial is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from epochal.records.find import find_runs, read_run
from epochal.sweep.trials import read_trials
from swept import new_sweep

if TYPE_CHECKING:
    from epochal.sweep.sweep_folder import SweepFolder

Count = Callable[[str, object], None]
SCRIPT = Path(__file__).parents[1] / "sweep_process.py"


def start(folder: SweepFolder, leases: Path) -> subprocess.Popen[str]:
    words = [sys.executable, str(SCRIPT), "run", str(folder.path), str(leases)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def kill_until_done(folder: SweepFolder, leases: Path, wanted: int, dice: random.Random) -> int:
    """Kill the process of the sweep up to ``wanted`` times; gives how often."""
    kills = 0
    while True:
        process = start(folder, leases)
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        try:
            process.wait(dice.uniform(0.0, 0.6) if kills < wanted else None)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
        else:
            assert process.returncode == 0
            return kills
        finally:
            process.stdout.close()


def proposed(folder: SweepFolder) -> dict[int, float]:
    settings = folder.read_settings()
    trials = read_trials(folder, settings)
    assert {one.state for one in trials.values()} == {"finished"}
    return {number: one.values["optim.lr"] for number, one in trials.items()}


def check_kills(tmp_path: Path, wanted: int, seed: int, count: Count) -> None:
    num_trials = max(12, wanted)
    section = f"  method: random\n  trials: {num_trials}\n"
    calm = new_sweep(tmp_path / "calm", section)
    leases = tmp_path / "home" / "leases"
    folder = new_sweep(tmp_path / "stormy", section)
    kills = kill_until_done(folder, leases, wanted, random.Random(seed))
    expected = {n: calm_values(calm, n) for n in range(num_trials)}
    assert proposed(folder) == expected
    finished = Counter(
        read_run(one.path).run["trial"]["number"]
        for one in find_runs(tmp_path / "stormy" / "runs")
        if one.status == "finished"
    )
    assert finished == dict.fromkeys(range(num_trials), 1)
    others = Counter(
        one.status for one in find_runs(tmp_path / "stormy" / "runs") if one.status != "finished"
    )
    text = f"{kills} kills, {num_trials} trials each finished once; abandoned records: {others}"
    count("counted", f"SIGKILL of a sweep at random times, seed {seed}: {text}")


def calm_values(folder: SweepFolder, number: int) -> float:
    from epochal.sweep.sampling import RandomSampler

    settings = folder.read_settings()
    sampler = RandomSampler(settings.space, settings.is_allowed, settings.seed)
    values = sampler.ask(number)
    assert values is not None
    value: float = values["optim.lr"]
    return value


@pytest.mark.long
def test_a_killed_sweep_neither_loses_nor_doubles_a_trial(
    tmp_path: Path, record_property: Count
) -> None:
    check_kills(tmp_path, 6, 0, record_property)


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_a_sweep_killed_a_hundred_times_neither_loses_nor_doubles_a_trial(
    tmp_path: Path, record_property: Count
) -> None:
    check_kills(tmp_path, int(os.environ.get("EPOCHAL_TORTURE_KILLS", "100")), 1, record_property)
