"""Starts the processes of a run with PyTorch's elastic agent, and reports how they ended."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, final

from torch.distributed import DistError
from torch.distributed.elastic.agent.server.api import (
    RunResult,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous.api import RendezvousClosedError, RendezvousError
from typing_extensions import override

from epochal.distributed.parent_process import end_with_parent
from epochal.errors import Preempted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from epochal.distributed.node_group import NodeGroup

_FORWARDED = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP")
_AGENT_LOGGERS = ("torch.distributed.elastic", "torch.multiprocessing")
_SAVE_SECONDS = 600
"""How long processes may save before they are killed, when another machine wants to join."""

StartMethod = Literal["fork", "spawn"]


@final
@dataclass(frozen=True, kw_only=True)
class GroupEnd:
    """How the processes of a run ended."""

    values: dict[int, Any] = field(default_factory=dict)
    """What each rank of this machine returned, if all of them ended by themselves."""

    has_new_nodes: bool = False
    """Whether a machine wants to join or was lost, so that a new rendezvous is needed."""

    is_closed: bool = False
    """Whether the other machines ended this round while this one waited to join."""

    has_main: bool = True
    """Whether this machine had the main process."""

    was_signalled: bool = False
    """Whether this machine was asked to stop."""

    failed_rank: int | None = None
    code: int = 0
    """The exit code of the rank that died first, or minus the signal that killed it."""


def launch_ranks(
    function: Callable[..., Any],
    *args: object,
    nproc: int,
    start_method: StartMethod,
    environment: dict[str, str],
    nodes: NodeGroup,
    ends_run: Callable[[Any], bool] = lambda value: True,
    terminal_rank: int | None = None,
    has_own_groups: bool = True,
) -> GroupEnd:
    """Run a function in several processes, with the variables that torchrun sets.

    A signal to this process goes to all of them. If one dies, the others are ended.

    Args:
        function: Called in each process; with ``spawn``, it is imported there.
        args: Its arguments.
        nproc: The number of processes on this machine.
        start_method: ``fork`` is fast; with CUDA only ``spawn`` works.
        environment: Variables to add.
        nodes: The machines that take part.
        ends_run: Whether a value that the function returned ends the run on all machines.
        terminal_rank: A rank that can read from the terminal; Ctrl-C there reaches it directly.
        has_own_groups: Whether each is in a process group of its own, which Ctrl-C does not reach.

    Raises:
        NodesLostError: The machines did not connect, or the endpoint of their rendezvous is gone.
    """
    rendezvous = nodes.make_rendezvous()
    with (
        _silencing_agent(),
        _added_to_environment({**environment, "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGQUIT"}),
        _forwarding_signals() as signals,
    ):
        spec = WorkerSpec(
            role="default",
            local_world_size=nproc,
            entrypoint=_Worker(function, signals.ignored, terminal_rank, has_own_groups),
            args=args,
            rdzv_handler=rendezvous,
            max_restarts=0,  # whether a run is started again is not decided here
            monitor_interval=0.05 if nodes.is_single else 0.2,
        )
        agent = _Agent(spec, start_method, nodes, ends_run, signals)
        try:
            end = _describe(agent.run())
        except RendezvousClosedError:
            end = GroupEnd(is_closed=True)
        except (_NodesChangedError, DistError):
            end = GroupEnd(has_new_nodes=True)
        except RendezvousError as error:
            raise nodes.explain(error) from error
        rendezvous.shutdown()  # but not after Ctrl-C: other machines may wait there
    has_main = agent.get_worker_group().group_rank == 0
    return replace(end, was_signalled=signals.has_come, has_main=has_main)


def _describe(result: RunResult | None) -> GroupEnd:
    if result is None:  # it was more than the largest number of machines
        return GroupEnd(is_closed=True)
    if result.is_failed():
        rank, failure = min(result.failures.items(), key=lambda one: one[1].timestamp)
        return GroupEnd(failed_rank=rank, code=failure.exitcode)
    return GroupEnd(values=result.return_values)


class _NodesChangedError(Exception):
    """A machine waits to join."""


@final
class _Agent(LocalElasticAgent):
    """The agent of one start: it never starts processes again itself."""

    def __init__(
        self,
        spec: WorkerSpec,
        start_method: StartMethod,
        nodes: NodeGroup,
        ends_run: Callable[[Any], bool],
        signals: _Signals,
    ) -> None:
        super().__init__(spec, DefaultLogsSpecs(), start_method)
        self._nodes, self._ends_run = nodes, ends_run
        self._signals = signals
        self._is_over = True

    @override
    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._signals.is_waiting = False
        self._nodes.show_start(worker_group)
        started: dict[int, Any] = super()._start_workers(worker_group)
        return started

    @override
    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        self._nodes.publish_run()
        result: RunResult = super()._monitor_workers(worker_group)
        self._is_over = all(map(self._ends_run, result.return_values.values()))
        return result

    @override
    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        """Let the processes save and end, since another machine waits."""
        _send_to_children(signal.SIGTERM)
        end = time.monotonic() + _SAVE_SECONDS
        # They end when their results were read, which monitoring does.
        while super()._monitor_workers(worker_group).state == WorkerState.HEALTHY:
            if time.monotonic() > end:
                break
            time.sleep(worker_group.spec.monitor_interval)
        raise _NodesChangedError

    @override
    def _exit_barrier(self) -> None:
        # The next rendezvous does not wait for a machine that leaves.
        if self._is_over:
            super()._exit_barrier()  # type: ignore[no-untyped-call]  # torch has none


@final
class _Worker:
    """What each process runs; the agent needs a name of it."""

    def __init__(
        self,
        function: Callable[..., Any],
        ignored: list[int],
        terminal_rank: int | None,
        has_own_groups: bool,
    ) -> None:
        self._function, self._has_own_groups = function, has_own_groups
        self._ignored, self._terminal_rank = ignored, terminal_rank
        self.__name__ = self.__qualname__ = getattr(function, "__qualname__", "run")

    def __call__(self, *args: object) -> Any:  # noqa: ANN401 - what the function returns
        end_with_parent()  # torch lets the kernel send SIGINT, which looks like Ctrl-C
        is_behind = int(os.environ["RANK"]) != self._terminal_rank
        if hasattr(os, "setpgid") and is_behind and self._has_own_groups:
            with suppress(OSError):  # Ctrl-C reaches the parent, which passes it on once
                os.setpgid(0, 0)
        for number in _list_signals():
            usual: Any = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if number in self._ignored else usual)
        return self._function(*args)


def _send_to_children(number: int) -> None:
    for process in multiprocessing.active_children():
        if process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)


def _list_signals() -> list[int]:
    return [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]


@final
class _Signals:
    """The signals that reached this process."""

    def __init__(self) -> None:
        self.ignored: list[int] = []
        self.has_come = False
        self.is_waiting = True
        """Whether no process was started yet: other machines are missing."""


@contextmanager
def _forwarding_signals() -> Iterator[_Signals]:
    """Pass signals on to all processes in a block."""
    owner = os.getpid()
    signals = _Signals()

    def forward(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            return
        signals.has_come = True
        # A closed terminal becomes SIGTERM, so that the run saves.
        number = signal.SIGTERM if number == getattr(signal, "SIGHUP", None) else number
        _send_to_children(number)
        if signals.is_waiting:
            raise KeyboardInterrupt if number == signal.SIGINT else Preempted

    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {number: signal.getsignal(number) for number in _list_signals()}
    signals.ignored = [number for number, handler in before.items() if handler == signal.SIG_IGN]
    for number in before:
        if number not in signals.ignored:
            signal.signal(number, forward)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _silencing_agent() -> Iterator[None]:
    """Leave the messages of the agent out: the run itself says what failed."""
    loggers = [logging.getLogger(name) for name in _AGENT_LOGGERS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


@contextmanager
def _added_to_environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
