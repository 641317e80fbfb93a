"""Starts the processes of a run with PyTorch's elastic agent, and tells how they ended."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, final

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_FORWARDED = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP")
_LOUD = ("torch.distributed.elastic", "torch.multiprocessing", "torch.distributed.launcher")
StartMethod = Literal["fork", "spawn"]


@final
@dataclass(frozen=True, kw_only=True)
class GroupEnd:
    """How the processes of a run ended."""

    values: dict[int, Any] = field(default_factory=dict)
    """What each rank returned, if all of them ended by themselves."""

    failed_rank: int | None = None
    code: int = 0
    """The exit code of the rank that died first, or minus the signal that killed it."""


def launch_ranks(
    function: Callable[..., Any],
    *args: object,
    nproc: int,
    start_method: StartMethod,
    environment: dict[str, str],
    terminal_rank: int | None = None,
    has_own_groups: bool = True,
) -> GroupEnd:
    """Run a function in several processes, with the variables that torchrun sets.

    A signal to this process goes to all of them. If one dies, the others are ended.

    Args:
        function: Called in each process; with ``spawn``, it is imported there.
        args: Its arguments.
        nproc: The number of processes.
        start_method: ``fork`` is fast; with CUDA only ``spawn`` works.
        environment: Variables to add.
        terminal_rank: A rank that can read from the terminal; Ctrl-C there reaches it directly.
        has_own_groups: Whether each is in a process group of its own, which Ctrl-C does not reach.
    """
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=nproc,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,  # whether a run is started again is not decided here
        monitor_interval=0.05,
        start_method=start_method,
        signals_to_handle="SIGQUIT",
    )
    with _quiet_loggers(), _added_to_environment(environment), _forwarding_signals() as ignored:
        try:
            values = elastic_launch(
                config, _Worker(function, ignored, terminal_rank, has_own_groups)
            )(*args)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            return GroupEnd(failed_rank=rank, code=failure.exitcode)
    return GroupEnd(values=values)


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
        is_behind = int(os.environ["RANK"]) != self._terminal_rank
        if hasattr(os, "setpgid") and is_behind and self._has_own_groups:
            with suppress(OSError):  # Ctrl-C reaches the parent, which passes it on once
                os.setpgid(0, 0)
        for number in _list_signals():
            usual: Any = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if number in self._ignored else usual)
        return self._function(*args)


def _list_signals() -> list[int]:
    return [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]


@contextmanager
def _forwarding_signals() -> Iterator[list[int]]:
    """Pass signals on to all processes in a block; gives those that are ignored."""
    owner = os.getpid()

    def forward(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            return
        # A closed terminal becomes SIGTERM, so that the run saves.
        number = signal.SIGTERM if number == getattr(signal, "SIGHUP", None) else number
        for process in multiprocessing.active_children():
            if process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    before = {number: signal.getsignal(number) for number in _list_signals()}
    ignored = [number for number, handler in before.items() if handler == signal.SIG_IGN]
    for number in before:
        if number not in ignored:
            signal.signal(number, forward)
    try:
        yield ignored
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _quiet_loggers() -> Iterator[None]:
    """Leave the messages of the agent out: the run itself says what failed."""
    loggers = [logging.getLogger(name) for name in _LOUD]
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
