"""Tests of keeping memory and of giving it back."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest
import torch

from engine.parts import fit, make_run
from epochal.engine.device import memory
from epochal.engine.execute import describe_plan
from epochal.engine.runner import Train


class Emptier:
    """Counts how often memory is given back."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


@pytest.fixture
def emptier(monkeypatch: pytest.MonkeyPatch) -> Emptier:
    emptier = Emptier()
    monkeypatch.setattr(memory, "find_empty_cache", lambda device: emptier)
    return emptier


@pytest.mark.parametrize(("every", "times"), [("2st", 5), ("1ep", 2), (0, 0)])
def test_memory_is_given_back_as_often_as_asked(
    emptier: Emptier, every: object, times: int
) -> None:
    fit(make_run(for_="2ep", engine={"empty_cache_every": every}))
    assert emptier.calls == times


def test_by_default_it_never_is(emptier: Emptier) -> None:
    fit(make_run(for_="2ep"))
    assert emptier.calls == 0


def test_the_plan_shows_it(emptier: Emptier) -> None:
    rows = describe_plan(make_run(engine={"empty_cache_every": "100st"}), Train())
    assert ("empty the cache", "100st") in [(row.hook, row.cadence) for row in rows]


def test_a_cpu_keeps_no_memory_and_trains_on() -> None:
    assert memory.find_empty_cache(torch.device("cpu")) is None
    assert fit(make_run(for_="3st", engine={"empty_cache_every": "1st"})).ok


def test_devices_that_keep_memory_can_give_it_back() -> None:
    for kind in ["cuda", "mps", "xpu"]:
        assert memory.find_empty_cache(torch.device(kind)) is getattr(torch, kind).empty_cache


KEEPING = """
import ctypes, resource, torch
from epochal.engine.device.memory import keep_freed_memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "_", "__", "mapped", *"abcdef")]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info

def allocate_mapped():
    before = libc.mallinfo2().mapped
    block = torch.empty(24 * 2**20, dtype=torch.uint8)
    return block, libc.mallinfo2().mapped - before

def one_step():
    for part in [torch.ones(2**18) for _ in range(8)]:
        del part

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

torch.set_num_threads(1)
block, mapped_before = allocate_mapped()
keep_freed_memory()
other, mapped_after = allocate_mapped()
for _ in range(10):
    one_step()
before = faults()
for _ in range(20):
    one_step()
print(mapped_before, mapped_after, faults() - before)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="it is about glibc, from 2.33 on",
)
def test_memory_that_a_step_frees_is_reused_by_the_next() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", KEEPING]
    words = subprocess.check_output(command, env=environment, text=True).split()
    mapped_before, mapped_after, faults = map(int, words)
    assert (mapped_before, mapped_after) == (1, 0), "large blocks come from the heap since then"
    assert faults < 20


def test_a_run_keeps_what_its_steps_free(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("epochal.engine.execute.keep_freed_memory", lambda: calls.append(1))
    fit(make_run(for_="2st"))
    assert calls == [1]
