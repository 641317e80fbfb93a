"""A process that waits for others says so, and Ctrl-C or SIGTERM end it."""

from __future__ import annotations

import signal
import socket

import pytest
import torch

from epochal.distributed.environment import RankEnvironment
from epochal.distributed.process_group import join_process_group
from epochal.distributed.wait_for_ranks import waiting_for_ranks
from epochal.errors import ConfigError
from forked import Child

ALONE = """
import sys, torch
from epochal.distributed import wait_for_ranks
from epochal.distributed.environment import RankEnvironment
from epochal.distributed.process_group import join_process_group
from epochal.text.interrupts import raising_on_preemption
wait_for_ranks._SECONDS = 0.0
sys.stdout.reconfigure(line_buffering=True)
sys.stderr = sys.stdout
place = RankEnvironment(rank=0, local_rank=0, world_size=2, local_world_size=2,
                        master_addr="127.0.0.1", master_port=int(sys.argv[1]))
with raising_on_preemption():
    join_process_group(place, torch.device("cpu"), timeout=600)
"""


def find_free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port


def test_a_process_without_the_others_says_what_it_waits_for_and_can_be_ended() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        port = find_free_port()
        child = Child("-c", ALONE, str(port))
        expected = f"rank 0 waits for the other 1 of 2 processes at 127.0.0.1:{port}"
        assert expected in child.stdout.readline()
        assert "unset RANK and WORLD_SIZE" in child.stdout.readline()
        child.signal(number)
        assert child.end().returncode == -number


def test_handlers_of_signals_are_restored() -> None:
    place = RankEnvironment(rank=0, local_rank=0, world_size=2, local_world_size=2)
    before = signal.getsignal(signal.SIGINT)
    with waiting_for_ranks(place):
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == before


def test_a_port_in_use_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(port))
        place = RankEnvironment(
            rank=0, local_rank=0, world_size=2, local_world_size=2, master_port=port
        )
        with pytest.raises(ConfigError, match=f"MASTER_PORT: another process uses port {port}"):
            join_process_group(place, torch.device("cpu"), timeout=5)
