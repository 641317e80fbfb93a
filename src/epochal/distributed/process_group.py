"""The processes of a run that torch.distributed connects."""

from __future__ import annotations

import atexit
import os
import time
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, final

import torch
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore
from typing_extensions import override

from epochal.distributed.environment import RankEnvironment
from epochal.distributed.flat_tensors import exchange_flat
from epochal.distributed.gloo_connections import Connection, record_connections, shut_down
from epochal.distributed.rank_failure import (
    FailureReport,
    RankFailedError,
    RankLostError,
    is_lost_connection,
)
from epochal.distributed.rank_listener import POLL_SECONDS, RankListener
from epochal.distributed.rank_processes import RankProcesses
from epochal.distributed.wait_for_ranks import waiting_for_ranks
from epochal.distributed.world import SingleProcess, World
from epochal.errors import ConfigError, Preempted, Problem

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor

ValueT = TypeVar("ValueT")

_REPORT_SECONDS = 1.0
"""How long a process that lost a connection waits for the report of the one that failed, which is
there before that connection is closed."""

_END_SECONDS = 60.0
"""How long a failed process waits for the main one to record the failure."""

_run_numbers = count()
_connections: list[Connection] = []
"""The file descriptors of the connections to other processes."""

_timeouts: list[timedelta] = []
"""The timeout of collectives; the last one counts."""


@final
class ProcessGroup(World):
    """The processes of the default process group.

    A store keeps what processes exchange outside of collectives; every run has its own
    part of it.
    """

    def __init__(self, place: RankEnvironment) -> None:
        self.rank, self.local_rank = place.rank, place.local_rank
        self.world_size = place.world_size
        store: Any = distributed.distributed_c10d._get_default_store()
        self._prefix = f"epochal/{next(_run_numbers)}"
        # A connection for each thread: a call of one would wait for that of the other.
        self._store = PrefixStore(self._prefix, store.clone())
        self._listener = RankListener(
            PrefixStore(self._prefix, store.clone()), self.rank, self.world_size
        )
        self._listener.abort_connections = _abort_device_connections
        self.listener = self._listener
        self._processes = RankProcesses(self._store, self.world_size)
        self._processes.publish(self.rank)
        self.has_failed = self._has_lost_rank = False

    @override
    def barrier(self) -> None:
        self.gather(None)

    @override
    def broadcast(self, value: ValueT) -> ValueT:
        values = [value]
        device = torch.device("cpu")
        distributed.broadcast_object_list(values, src=0, group=_host_group(), device=device)
        return values[0]

    @override
    def gather(self, value: ValueT) -> list[ValueT]:
        values: list[Any] = [None] * self.world_size
        distributed.all_gather_object(values, value, group=_host_group())
        return values

    @override
    def collect(self, value: ValueT) -> list[ValueT]:
        values: list[Any] | None = [None] * self.world_size if self.is_main else None
        distributed.gather_object(value, values, dst=0, group=_host_group())
        return values or []

    @override
    def reduce(self, tensor: Tensor) -> Tensor:
        distributed.all_reduce(tensor)
        return tensor

    @override
    def broadcast_tensors(self, tensors: list[Tensor]) -> None:
        def send(flat: Tensor) -> Tensor:
            distributed.broadcast(flat, src=0)
            return flat

        exchange_flat(tensors, send)

    @override
    def abort(self, report: FailureReport) -> None:
        self.has_failed = True
        with suppress(Exception):  # without a store, the others notice the closed connections
            RankListener(self._store, self.rank, self.world_size).publish_failure(report)

    @override
    def explain(self, error: BaseException) -> BaseException:
        if isinstance(error, Preempted):
            error = self._find_killed() or error
        if isinstance(error, RankLostError):
            self.has_failed = self._has_lost_rank = True
            return error
        if not is_lost_connection(error) and not isinstance(error, RankFailedError):
            return error
        self.has_failed = True
        report: FailureReport | None = None
        if isinstance(error, RankFailedError):
            report = error.report
        else:
            with suppress(Exception):
                found = RankListener(self._store, self.rank, self.world_size)
                report = found.find_failure(_REPORT_SECONDS)
        if report is None or report.rank == self.rank:
            self._has_lost_rank = True
            another: BaseException = RankLostError(str(error).splitlines()[0])
        elif report.exception_type in ("Preempted", "KeyboardInterrupt"):
            another = (Preempted if report.exception_type == "Preempted" else KeyboardInterrupt)()
        else:
            another = RankFailedError(report)
        another.__cause__ = error
        return another

    def _find_killed(self) -> RankLostError | None:
        """Why a launcher ends this process; None if it was not another process of this machine."""
        try:
            rank = self._processes.find_killed()
        except Exception as error:  # the process with the store is gone
            return RankLostError.of_store(error)
        return None if rank is None else RankLostError.of_rank(rank)

    @override
    def leave(self) -> None:
        self._listener.stop()
        with suppress(Exception):
            self._processes.leave(self.rank)
        if not self.has_failed:
            return
        # Closed connections end the collectives in which other processes wait.
        has_connected = bool(_connections)
        shut_down(_connections)
        with suppress(Exception):
            distributed.destroy_process_group()
        if not has_connected:  # user code made the group: the others notice when this process ends
            return
        if not self.is_main and not self._has_lost_rank:  # else it may be the main process
            self._wait_for_main()

    def _wait_for_main(self) -> None:
        """Wait for the main process: a launcher may end all once the first one has ended."""
        end = time.monotonic() + _END_SECONDS
        with suppress(Exception):
            while not self._processes.has_left(0) and time.monotonic() < end:
                time.sleep(POLL_SECONDS)


def join_process_group(
    place: RankEnvironment | None, device: torch.device, *, timeout: float, is_wanted: bool = False
) -> World:
    """The processes that a launcher has started, or this one alone.

    Args:
        place: Of this process; None if no launcher has started several.
        device: Of this process; decides how processes are connected.
        timeout: Seconds after which a collective that makes no progress fails.
        is_wanted: Make a process group for a single process, too.
    """
    if (place is None or place.world_size == 1) and not is_wanted:
        return SingleProcess()
    place = place or RankEnvironment(rank=0, local_rank=0, world_size=1, local_world_size=1)
    if not distributed.is_initialized():
        _connect(place, device, timedelta(seconds=timeout))
        atexit.register(_disconnect)
    if distributed.get_world_size() != place.world_size:
        what = f"the process group has {distributed.get_world_size()} processes, and the launcher "
        hint = "leave out init_process_group, which is done here"
        raise ConfigError(Problem("strategy", f"{what}says {place.world_size}", hint=hint))
    return ProcessGroup(place)


def _connect(place: RankEnvironment, device: torch.device, timeout: timedelta) -> None:
    # Objects travel between hosts, so both kinds of tensors need a backend.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device.index or 0)
    if place.world_size == 1:
        store = distributed.HashStore()  # type: ignore[attr-defined]  # torch does not declare it
        distributed.init_process_group(backend, store=store, rank=0, world_size=1)
        return
    os.environ.setdefault("MASTER_ADDR", place.master_addr or "127.0.0.1")
    if not place.master_port:
        what = "the port at which the processes connect is not set"
        hint = "set MASTER_ADDR and MASTER_PORT, the same for all of them"
        raise ConfigError(Problem("MASTER_PORT", what, hint=hint))
    os.environ.setdefault("MASTER_PORT", str(place.master_port))
    _timeouts.append(timeout)
    port = int(os.environ["MASTER_PORT"])
    with record_connections(_connections, port), waiting_for_ranks(place):
        try:
            distributed.init_process_group(
                backend, rank=place.rank, world_size=place.world_size, timeout=timeout
            )
        except distributed.DistNetworkError as error:  # names no cause but in its text
            if "EADDRINUSE" not in str(error):
                raise
            what = f"another process uses port {port} of this machine"
            hint = "end that process, or set another port for all processes of this run"
            raise ConfigError(Problem("MASTER_PORT", what, hint=hint)) from error


def tracking_connections() -> AbstractContextManager[None]:
    """Track connections of process groups made in a block, so that a failed process closes them."""
    return record_connections(_connections, int(os.environ.get("MASTER_PORT", "0")))


def _disconnect() -> None:
    if distributed.is_initialized():
        with suppress(Exception):
            distributed.destroy_process_group()


def _host_group() -> Any:  # noqa: ANN401 - torch names no type for its groups
    """The group for objects: gloo, since NCCL would copy them to the device and back."""
    return _make_host_group(distributed.group.WORLD)


@lru_cache(maxsize=1)
def _make_host_group(default: object) -> Any:  # noqa: ANN401 - as above
    """The group for objects beside a default group, which other code may destroy and make again."""
    if distributed.get_backend() == "gloo":
        return None
    return distributed.new_group(backend="gloo", timeout=_timeouts[-1] if _timeouts else None)


def _abort_device_connections() -> None:
    """End the collectives of a device; those of gloo notice a closed connection."""
    if "nccl" in str(distributed.get_backend()):
        with suppress(Exception):
            distributed.distributed_c10d._abort_process_group()
