"""The facade of a run's processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import distributed

from epochal.distributed import process_group
from epochal.distributed.environment import RankEnvironment
from epochal.distributed.gloo_connections import Connection
from epochal.distributed.rank_failure import (
    FailureReport,
    RankFailedError,
    is_lost_connection,
    report_error,
)
from epochal.distributed.world import SingleProcess, join_numbers
from epochal.testing import tiny_run

if TYPE_CHECKING:
    import pytest


def test_single_process_needs_no_process_group() -> None:
    world = SingleProcess()
    assert (world.rank, world.local_rank, world.world_size) == (0, 0, 1)
    assert world.is_main
    world.barrier()
    world.abort(FailureReport(rank=0, exception_type="E", message="", traceback=""))
    assert world.broadcast("value") == "value"
    assert world.gather(1) == world.collect(1) == [1]
    assert world.reduce(torch.ones(2)).tolist() == [1.0, 1.0]
    error = ValueError()
    assert world.explain(error) is error
    world.leave()
    assert not torch.distributed.is_initialized()


def test_run_of_one_process_knows_its_place() -> None:
    run = tiny_run()
    assert (run.rank, run.local_rank, run.world_size, run.is_main) == (0, 0, 1, True)
    assert run.raw_model is run.model is run.trained_model
    assert run.listener is None


def test_report_of_a_failure_survives_a_round_trip_as_text() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        report = report_error(error, 3, exit_code=1, reason="exception")
    again = FailureReport.from_text(report.to_text())
    assert again == report
    assert "raise ValueError" in again.traceback
    assert str(RankFailedError(again)) == "rank 3: ValueError: broken"


def test_only_errors_of_connections_may_have_another_cause() -> None:
    gloo = RuntimeError("[/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed")
    for error, is_lost in (
        (gloo, True),
        (RuntimeError("Connection reset by peer"), True),
        (RuntimeError("the store is empty"), False),
        (ValueError("Connection closed by peer"), False),
    ):
        assert is_lost_connection(error) is is_lost, error


def test_numbers_of_processes_are_added_by_name() -> None:
    assert join_numbers([{"a": 1.0}, {"a": 2.0, "b": 3.0}, {}]) == {"a": 3.0, "b": 3.0}


def test_failed_process_waits_for_the_main_one_only_if_that_can_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        raise InterruptedError  # ends the wait

    monkeypatch.setattr(process_group.time, "sleep", sleep)
    place = RankEnvironment(rank=1, local_rank=1, world_size=2, local_world_size=2)
    for connections, is_waiting in (
        ([Connection(-1, 0)], True),  # made by Epochal
        ([], False),  # made by the user
    ):
        store = distributed.HashStore()
        distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        world = process_group.ProcessGroup(place)
        monkeypatch.setattr(process_group, "_connections", connections)
        waited.clear()
        world.has_failed = True
        world.leave()
        assert bool(waited) is is_waiting, is_waiting
