"""Processes agree on a step through a store; here they are threads."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import Any

import pytest
import torch

from epochal.distributed.rank_failure import FailureReport, RankFailedError, RankLostError
from epochal.distributed.rank_listener import PREEMPTED, TIME, Agreement, RankListener
from epochal.distributed.rank_processes import RankProcesses
from epochal.records.layout.process import describe_process


class Rank:
    """A process that takes steps in lockstep with the others, and its listener."""

    def __init__(self, store: Any, rank: int, size: int, barrier: threading.Barrier) -> None:
        self.listener = RankListener(store, rank, size)
        self.step, self.is_woken = 0, False
        self.barrier = barrier
        self.agreed: Agreement | None = None
        self.listener.start(self)

    def wake(self) -> None:
        self.is_woken = True

    def read_step(self) -> int:
        return self.step

    def read_seconds(self) -> float:
        return 7.5

    def locate(self) -> dict[str, Any]:
        return {"step": self.step}

    describe = locate

    def train(self) -> None:
        while self.agreed is None:
            self.barrier.wait()  # as the reduction of gradients
            self.step += 1
            if self.is_woken or self.step >= self.listener.due_step:
                self.is_woken = False
                self.agreed = self.listener.settle(self.step)
        self.listener.stop()


def make_ranks(size: int) -> list[Rank]:
    store, barrier = torch.distributed.HashStore(), threading.Barrier(size)
    return [Rank(store, rank, size, barrier) for rank in range(size)]


@pytest.mark.parametrize("size", [2, 3])
def test_all_processes_act_after_the_same_step(size: int) -> None:
    for kinds in ((PREEMPTED,), (TIME,), (PREEMPTED, PREEMPTED)):
        ranks = make_ranks(size)
        threads = [threading.Thread(target=rank.train) for rank in ranks]
        for thread in threads:
            thread.start()
        for rank, kind in zip(reversed(ranks), kinds, strict=False):
            rank.listener.request(kind)
        for thread in threads:
            thread.join()
        agreed = {rank.agreed for rank in ranks}
        steps = {rank.step for rank in ranks}
        assert len(agreed) == len(steps) == 1, kinds
        assert ranks[0].listener.find_killed() is None
        (one,) = agreed
        assert one is not None
        assert (one.kind, one.step, one.seconds) == (kinds[0], *steps, 7.5)
        has_ended = [rank.listener.stop_kind for rank in ranks]
        assert has_ended == ["" if kinds == (TIME,) else PREEMPTED] * size


def test_request_to_end_that_comes_after_the_last_step_ends_the_next_run() -> None:
    for is_agreed in (True, False):  # on a step that the run does not take any more
        ranks = make_ranks(2)
        if is_agreed:
            ranks[1].listener.request(PREEMPTED)
            while any(rank.listener.agreement is None for rank in ranks):
                threading.Event().wait(0.001)
        for rank in ranks:
            rank.listener.stop()
        if not is_agreed:
            ranks[1].listener.request(PREEMPTED)
        for rank in ranks:
            rank.listener.request(TIME)  # the clock of the ended run
            rank.listener.start(rank)
        threads = [threading.Thread(target=rank.train) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {rank.agreed and rank.agreed.kind for rank in ranks} == {PREEMPTED}, is_agreed


def test_failure_of_one_process_reaches_all_others() -> None:
    first, second = make_ranks(2)
    report = FailureReport(rank=1, exception_type="E", message="broken", traceback="")
    second.listener.publish_failure(report)
    second.listener.publish_failure(FailureReport(**{**vars(report), "message": "later"}))
    assert first.listener.find_failure(60) == report
    with pytest.raises(RankFailedError, match="rank 1: E: broken"):
        first.listener.settle(0)
    with pytest.raises(RankFailedError):
        first.listener.find_end()
    assert second.listener.find_end() == ""  # its own error is on its way
    for rank in (first, second):
        rank.listener.stop()


def test_positions_of_all_processes_can_be_asked_for() -> None:
    ranks = make_ranks(2)
    ranks[1].step = 4
    assert ranks[0].listener.collect_positions() == {0: {"step": 0}, 1: {"step": 4}}
    for rank in ranks:
        rank.listener.stop()


def test_process_that_has_ended_the_run_is_found_where_it_ended() -> None:
    ranks = make_ranks(2)
    ranks[1].step = 3
    ranks[1].listener.stop()
    for step in (3, 0):  # also after it has begun the next run
        assert ranks[0].listener.collect_positions() == {0: {"step": 0}, 1: {"step": 3}}, step
        ranks[1].step = 0
        ranks[1].listener.start(ranks[1])
    for rank in ranks:
        rank.listener.stop()


def test_killed_process_ends_the_wait_for_its_answer() -> None:
    store, child = torch.distributed.HashStore(), os.fork()
    if child == 0:
        signal.pause()
    killed = describe_process(child)
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # a zombie is gone, too
    for who, has_left, found in (
        (describe_process(os.getpid()), False, None),
        (killed | {"namespace": 1}, False, None),  # of another container
        (killed, True, None),
        (killed, False, 1),
    ):
        processes = RankProcesses(store, 3)
        processes.publish(0)
        store.set("process/1", json.dumps(who))
        if has_left:
            processes.leave(1)
        assert processes.find_killed() == found, who
        store.delete_key("left/1")
    os.waitpid(child, 0)
    rank = Rank(store, 0, 2, threading.Barrier(1))
    rank.listener.request(PREEMPTED)
    with pytest.raises(RankLostError, match="rank 1 does not exist any more"):
        rank.train()
    assert rank.listener.find_killed() == 1
    rank.listener.stop()


def test_run_ends_when_the_process_with_the_store_is_gone() -> None:
    server = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    client = torch.distributed.TCPStore("localhost", server.port, wait_for_workers=False)
    woken = threading.Event()
    rank = Rank(client, 0, 2, threading.Barrier(1))
    rank.wake = woken.set
    assert rank.listener.settle(0) is None
    del server
    assert woken.wait(60)
    for ask in (lambda: rank.listener.settle(1), rank.listener.find_end):
        with pytest.raises(RankLostError, match="the process that started this one"):
            ask()
    rank.listener.stop()
