"""Loader workers survive the signals of a scheduler, and end with their loader or process."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from epochal.engine.process.workers import iterate_loader, protect_workers_from_signals
from forked import run
from small_project import write

if TYPE_CHECKING:
    from pathlib import Path


class Stuck(Dataset[torch.Tensor]):
    """A dataset whose second sample never comes."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        if index:
            threading.Event().wait()
        return torch.ones(1)


def test_terminate_ends_a_worker_at_once_although_it_ignores_sigterm() -> None:
    loader = DataLoader(Stuck(), num_workers=1)
    protect_workers_from_signals(loader)
    batches = iterate_loader(loader)
    next(batches)  # the worker has its handlers
    (worker,) = multiprocessing.active_children()
    batches._worker_pids_set = False  # type: ignore[attr-defined]  # torch reports no death
    torch._C._remove_worker_pids(id(batches))
    worker.terminate()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL


def test_the_signal_mask_is_restored() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    loader = DataLoader(Stuck(), num_workers=1)
    protect_workers_from_signals(loader)
    iterate_loader(loader)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


FORKING = """
import os, signal, sys
from epochal.cli import main

def signal_group():
    os.kill(os.getpid(), signal.SIGTERM)
    {more}

os.register_at_fork(after_in_child=signal_group)
sys.exit(main(sys.argv[1:]))
"""
TORTURE_SIGNALS = 200
FED = "task={type: shop.parts.Fed}"
ROWS = (
    "data={train: {type: shop.parts.Rows, batch_size: 2, workers: 2}, "
    "val: {type: shop.parts.Rows, batch_size: 2}}"
)
WORDS = ("run", "config.yaml", FED, ROWS, "--device", "cpu", "train.for=2ep")


def test_a_signal_at_the_start_of_a_worker_does_not_end_it(shop: Path) -> None:
    done = run("-c", FORKING.format(more=""), *WORDS)
    assert done.returncode == 0, done.stderr


def test_a_signal_to_the_group_while_workers_start_preempts_the_run(shop: Path) -> None:
    done = run("-c", FORKING.format(more="os.kill(os.getppid(), signal.SIGTERM)"), *WORDS)
    assert done.returncode == 75, done.stderr


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_many_signals_to_the_group_while_workers_start(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = FORKING.format(more="os.kill(os.getppid(), signal.SIGTERM)")
    codes = Counter(run("-c", code, *WORDS).returncode for _ in range(TORTURE_SIGNALS))
    with capsys.disabled():
        text = f"\n{TORTURE_SIGNALS} group signals while workers start: {dict(codes)}"
        print(text)  # noqa: T201 - the count
    assert set(codes) == {75}


RAISING = """
import epochal as ep

ep.run("config.yaml", overrides={overrides!r}, device="cpu")
"""


def test_a_script_ends_at_once_after_an_error_in_a_worker(shop: Path) -> None:
    rows = ROWS.replace("workers: 2", "workers: 2, bad: 3")
    write(shop / "train.py", RAISING.format(overrides=[FED, rows]))
    done = run(str(shop / "train.py"))
    assert done.returncode == 1, done.stderr
    assert "row 3 is torn" in done.stderr


PERSISTENT = """
import epochal as ep

for _ in range(3):
    loader = ep.data.chain(list(range(8))).loader(batch_size=4, workers=1, persistent_workers=True)
    assert len(list(loader)) == 2
    globals().setdefault("kept", []).append(loader)
"""


def test_a_script_that_ends_with_living_workers_prints_nothing() -> None:
    done = run("-c", PERSISTENT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
