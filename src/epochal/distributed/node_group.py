"""The machines of a run: their rendezvous, and what they agree on before each start."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, final

from torch.distributed import (  # type: ignore[attr-defined]  # torch does not declare them
    DistNetworkError,
    TCPStore,
)
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.elastic.rendezvous.api import RendezvousError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousTimeout,
)

from epochal.errors import RANK_LOST_EXIT_CODE, ConfigError, EpochalError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch.distributed.elastic.agent.server.api import WorkerGroup

WAIT_VARIABLE = "EPOCHAL_NODES_WAIT"
"""How many seconds the first start waits for more machines than the least number; 10 by default."""

_WAIT_SECONDS = 10.0
_NEXT_WAIT_SECONDS = 5.0
"""The same for later starts: all machines notice that the last one ended, or wait to join."""

_JOIN_SECONDS = 600
_REACH_SECONDS = 30.0
_CONNECT_SECONDS = 15.0
_ANSWER_SECONDS = 60.0
_LEAVE_SECONDS = 10.0
_POLL_SECONDS = 0.2
_TELL_SECONDS = 2.0
"""After which time a user is told what a machine waits for."""

_OPTION = "--rdzv-endpoint"
_FACTS = "epochal/facts"
_NEW = "-"  # instead of the folder of a run


class NodesLostError(EpochalError):
    """The machine that hosts the rendezvous was lost, or too few machines joined."""

    exit_code = RANK_LOST_EXIT_CODE


@final
class NodeGroup:
    """The machines of a run, as the launcher on each of them sees the others.

    They connect to a store. Each start of the processes is a round. The first launcher that sees a
    round fail opens the next one, in which the machines that are left meet again.

    Args:
        store: The store that they share.
        min_nodes: How many machines a start needs.
        max_nodes: How many take part at most; others wait until one is gone.
        local_addr: The address of this machine, as the others know it.
        endpoint: The address of the store, for messages.
        is_host: Whether the store ends with this process.
    """

    def __init__(
        self,
        store: TCPStore,
        *,
        min_nodes: int = 1,
        max_nodes: int = 1,
        local_addr: str = "localhost",
        endpoint: str = "",
        is_host: bool = True,
    ) -> None:
        self.min_nodes, self.max_nodes = min_nodes, max_nodes
        self.endpoint = endpoint
        self.read_run: Callable[[], str] = str
        """Gives the folder of the run, if the main process is on this machine."""

        self.tell: Callable[[str], None] = lambda text: None
        """Shows a line to the user."""

        self._store, self._local_addr = store, local_addr
        self._is_host, self._num_nodes = is_host, 1
        self._shared = PrefixStore("epochal", store)
        self._round = 0
        self._published = ""

    @property
    def is_single(self) -> bool:
        """Whether there is no other machine."""
        return self.max_nodes == 1

    @property
    def is_elastic(self) -> bool:
        """Whether a run continues when a machine leaves or joins."""
        return self.min_nodes < self.max_nodes

    def begin_round(self) -> str:
        """The folder of the run that this start resumes, the same on all machines; or nothing."""
        with self._explaining_store_errors():
            if self._shared.check(["end"]):
                raise NodesLostError("the run has ended on another machine")
            self._round = self._shared.add("round", 0)
            known = self._shared.compare_set("run", "", "").decode()
            # The first machine decides, since a new run may have begun when the others read this.
            agreed = self._shared.compare_set(f"resume/{self._round}", "", known or _NEW).decode()
        return "" if agreed == _NEW else agreed

    def end_round(self) -> None:
        """Start a new rendezvous, since processes of this start have died."""
        self.publish_run()
        with self._explaining_store_errors():
            # All machines end this round, and the first one opens the next.
            if self._shared.add(f"ended/{self._round}", 1) == 1:
                self._shared.add("round", 1)

    def wait_for_round(self) -> bool:
        """Wait for the next round after this one was closed; returns False if the run has ended."""
        end = time.monotonic() + _ANSWER_SECONDS
        with suppress(RuntimeError):  # the first machine ends with the run
            while time.monotonic() < end:
                if self._shared.add("round", 0) > self._round:
                    return True
                if self._shared.check(["end"]):
                    return False
                time.sleep(_POLL_SECONDS)
        return False

    def leave(self) -> None:
        """Note that the run has ended; call nothing else afterwards.

        The machine with the store leaves last.
        """
        with suppress(RuntimeError):
            self._shared.set("end", "1")
            end = time.monotonic() + _LEAVE_SECONDS
            num_left = self._shared.add("left", 1)
            while self._is_host and num_left < self._num_nodes and time.monotonic() < end:
                time.sleep(_POLL_SECONDS)
                num_left = self._shared.add("left", 0)

    def publish_run(self) -> None:
        """Tell the other machines the folder of the run, as soon as it is known here."""
        found = self.read_run()
        if found and found != self._published:
            with self._explaining_store_errors():
                self._shared.set("run", found)
            self._published = found

    def find_run(self) -> Path | None:
        """The folder of the run, if its main process is or was on any of the machines."""
        with self._explaining_store_errors():
            found = self._shared.compare_set("run", "", "").decode()
        return Path(found) if found else None

    def make_rendezvous(self) -> DynamicRendezvousHandler:
        """What PyTorch's elastic agent needs for this round."""
        if not self.is_single:
            self.tell(f"meeting the other machines at {self.endpoint} ...")
        name = f"round-{self._round}"
        wait = _read_wait() if self._round == 0 else _NEXT_WAIT_SECONDS
        times = RendezvousTimeout(
            join=timedelta(seconds=_JOIN_SECONDS), last_call=timedelta(seconds=wait)
        )
        made: DynamicRendezvousHandler = DynamicRendezvousHandler.from_backend(
            name,
            self._store,
            C10dRendezvousBackend(self._store, name),
            self.min_nodes,
            self.max_nodes,
            self._local_addr,
            times,
        )
        return made

    def show_start(self, group: WorkerGroup) -> None:
        """Tell the user which processes start here."""
        self._num_nodes = group.group_world_size  # type: ignore[assignment]  # torch declares None
        if not self.is_single:
            ranks = [one.global_rank for one in group.workers]
            total = group.workers[0].world_size
            here = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
            where = f"{self._num_nodes} of {self.max_nodes} machines"
            processes = "process" if total == 1 else "processes"
            self.tell(f"{total} {processes} on {where}; this one has {here}")

    def explain(self, error: Exception) -> NodesLostError:
        """The error to show when the machines did not connect."""
        where = f"{_OPTION} {self.endpoint}"
        if "time" in type(error).__name__.lower() and isinstance(error, RendezvousError):
            minutes = _JOIN_SECONDS // 60
            return NodesLostError(
                f"{where}: fewer than {self.min_nodes} machines came within {minutes} minutes\n"
                "  start the same command on the others, or use a smaller --nnodes"
            )
        return NodesLostError(
            f"{where}: the machine to which all others connect was lost\n"
            "  start the same command again on each machine, with --resume auto"
        )

    @contextmanager
    def _explaining_store_errors(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise self.explain(error) from error


def single_node() -> NodeGroup:
    """The group of a run on this machine only."""
    return NodeGroup(TCPStore("localhost", 0, is_master=True, wait_for_workers=False))


def join_nodes(
    endpoint: str,
    *,
    min_nodes: int,
    max_nodes: int,
    facts: Mapping[str, str],
    tell: Callable[[str], None],
    reach_seconds: float = _REACH_SECONDS,
    answer_seconds: float = _CONNECT_SECONDS,
) -> NodeGroup:
    """The group of the machines that connect to an endpoint; that machine hosts their store.

    Args:
        endpoint: Such as ``host:29400``.
        min_nodes: How many machines a start needs.
        max_nodes: How many take part at most.
        facts: What must be the same on all machines, by the words of a message.
        tell: Shows a line to the user.
        reach_seconds: How long to try to reach the endpoint.
        answer_seconds: How long to wait for the answer of the machine there.

    Raises:
        ConfigError: It cannot be reached, another program is there, or a fact differs.
    """
    host, port = parse_endpoint(endpoint)
    family, address = _resolve(endpoint, host, port)
    own = _host_store(host, port) if _can_listen(endpoint, family, address) else None
    if own is None:
        local_addr = _reach(endpoint, host, port, tell, reach_seconds)
        store, theirs = _connect(endpoint, host, port, tell, answer_seconds)
        _compare(theirs, facts)
    else:
        local_addr, store = host, own
        store.set(_FACTS, json.dumps(dict(facts)))
    found = NodeGroup(
        store,
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        local_addr=local_addr,
        endpoint=endpoint,
        is_host=own is not None,
    )
    found.tell = tell
    return found


def parse_endpoint(text: str) -> tuple[str, int]:
    """Host and port.

    Raises:
        ConfigError: The text is something else.
    """
    host, _, port = text.rpartition(":")
    if not host.strip("[]") or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        hint = "write a free port of one of the machines, such as node1:29400"
        raise ConfigError(Problem(_OPTION, f"must be HOST:PORT, got {text!r}", hint=hint))
    return host.strip("[]"), int(port)


def _read_wait() -> float:
    text = os.environ.get(WAIT_VARIABLE) or str(_WAIT_SECONDS)
    try:
        return max(float(text), 0.01)
    except ValueError:
        what, hint = f"must be a number of seconds, got {text!r}", "write for example 30"
        raise ConfigError(Problem(WAIT_VARIABLE, what, hint=hint)) from None


def _resolve(endpoint: str, host: str, port: int) -> tuple[int, tuple[object, ...]]:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise _unreachable(endpoint, error) from error
    return family, address


def _can_listen(endpoint: str, family: int, address: tuple[object, ...]) -> bool:
    """Whether the endpoint is on this machine and no process has it yet."""
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
                return False
            raise _unreachable(endpoint, error) from error
    return True


def _host_store(host: str, port: int) -> TCPStore | None:
    """A store at the endpoint; None if another process has just started one there."""
    wait = timedelta(seconds=_ANSWER_SECONDS)
    try:
        return TCPStore(host, port, is_master=True, wait_for_workers=False, timeout=wait)
    except DistNetworkError:
        return None


def _reach(endpoint: str, host: str, port: int, tell: Callable[[str], None], seconds: float) -> str:
    """Connect to the endpoint once; returns the address of this machine on the way there."""
    end, has_told = time.monotonic() + seconds, False
    while True:
        try:
            with socket.create_connection((host, port), timeout=max(seconds, 1.0)) as found:
                return str(found.getsockname()[0])
        except OSError as error:
            if time.monotonic() > end:
                raise _unreachable(endpoint, error) from error
            if not has_told:
                has_told = True
                tell(f"waiting for {endpoint} ({error.strerror or error})")
        time.sleep(_POLL_SECONDS)


def _connect(
    endpoint: str, host: str, port: int, tell: Callable[[str], None], seconds: float
) -> tuple[TCPStore, Mapping[str, str]]:
    """The store of the machine at the endpoint, and its facts.

    Another program at that port may never answer, and no signal ends the wait inside of torch, so
    a thread waits.
    """
    found: list[tuple[TCPStore, Mapping[str, str]]] = []

    def connect() -> None:
        with suppress(RuntimeError, ValueError):  # also another store, without facts
            wait = timedelta(seconds=_ANSWER_SECONDS)
            store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=wait)
            found.append((store, json.loads(store.get(_FACTS))))

    thread = threading.Thread(target=connect, name="epochal-join", daemon=True)
    thread.start()
    thread.join(min(_TELL_SECONDS, seconds))
    if thread.is_alive():
        tell(f"waiting for the answer of {endpoint} ...")
        thread.join(seconds)
    if found:
        return found[0]
    what = f"no run of several machines answers at {endpoint!r}: another program uses this port"
    hint = "choose a free port, the same on all machines, such as node1:29511"
    raise ConfigError(Problem(_OPTION, what, hint=hint))


def _unreachable(endpoint: str, error: OSError) -> ConfigError:
    what = f"{endpoint!r} cannot be reached: {error.strerror or error}"
    hint = "start the same command on that machine first, and let its firewall accept the port"
    return ConfigError(Problem(_OPTION, what, hint=hint))


def _compare(theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
    """Refuse to join machines that would compute something else."""
    problems = [
        Problem(
            "--nnodes",
            f"{what}: {value!r} here, {theirs.get(what)!r} on the machine at the endpoint",
            hint="make it the same on all machines",
        )
        for what, value in ours.items()
        if theirs.get(what) != value
    ]
    if problems:
        raise ConfigError(*problems)
