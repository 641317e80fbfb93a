"""Watches the other processes of a run in a thread, so that steps need no communication."""

from __future__ import annotations

import json
import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

from epochal.distributed.rank_failure import FailureReport, RankFailedError, RankLostError
from epochal.distributed.rank_processes import RankProcesses

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.distributed_c10d import Store

POLL_SECONDS = 0.05
_ANSWER_SECONDS = 10.0
_KILLED_SECONDS = 1.0
"""How long to wait for the answer whether a process was killed."""

_ABORT_SECONDS = 5.0
"""How long a failure of another process may take to reach the main thread by itself."""

TIME, INTERRUPTED, PREEMPTED = "time", "interrupted", "preempted"

logger = logging.getLogger(__name__)


class Agreement(NamedTuple):
    """What all processes do at the same step."""

    kind: str
    step: int
    seconds: float
    """The clock of the main process."""


class ListenedRun(Protocol):
    """What a listener needs of the run in its process."""

    def wake(self) -> None:
        """Have ``settle`` called after the current step."""

    def read_step(self) -> int:
        """Steps done."""

    def read_seconds(self) -> float:
        """Seconds since the run started."""

    def locate(self) -> dict[str, Any]:
        """Where the run is, as plain values."""

    def describe(self) -> dict[str, Any]:
        """The same; also writes the stacks of this process."""


@final
class RankListener:
    """Agrees with the other processes on the step at which a request from outside takes effect.

    A request opens a round. The listener of each process publishes a limit, the first step after
    which that process can act; the largest limit is the answer. A process that reaches its own
    limit before the answer is known waits for it in ``settle``. Steps without a request cost
    nothing: only this thread talks to the store.
    """

    def __init__(self, store: Store, rank: int, world_size: int) -> None:
        self._store = store
        self._rank, self._world_size = rank, world_size
        self._processes = RankProcesses(store, world_size)
        self._pending: set[str] = set()
        self._number = self._round = 0
        self._news = 0
        self._is_over = threading.Event()
        self._has_answer = threading.Event()
        self._is_open = False
        self._thread: threading.Thread | None = None
        self._run: ListenedRun | None = None
        self._stack_round = 0
        self.agreement: Agreement | None = None
        """What was agreed and is not done yet."""

        self.stop_kind = ""
        """``interrupted`` or ``preempted`` once a process was asked to end."""

        self.failure: FailureReport | None = None
        """The first failure of any process."""

        self.killed_rank: int | None = None
        """A process that was killed while this one waited for its answer."""

        self.lost_store: Exception | None = None
        """Why the store cannot be reached any more."""

        self.abort_connections: Callable[[], object] = lambda: None
        """Ends collectives that cannot notice a failure themselves."""

    @property
    def due_step(self) -> float:
        """The step at which ``settle`` must be called."""
        return float("inf") if self.agreement is None else self.agreement.step

    def start(self, run: ListenedRun) -> None:
        """Listen until ``stop``; one run may follow another.

        A request to end that came too late for the run before ends this one.
        """
        self._run, self._number, self._round = run, self._number + 1, 0
        if self.agreement is not None:
            self._pending.add(self.agreement.kind)
        self._pending.discard(TIME)
        self._is_over.clear()
        self._is_open, self.agreement, self.stop_kind = False, None, ""
        self._thread = threading.Thread(target=self._listen, name="epochal-ranks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; leaves behind where the run ended, for processes that wait for it."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        if self._run is not None and self.lost_store is None:
            with suppress(RuntimeError):  # the launcher may be gone
                self._store.set(f"end/{self._number}/{self._rank}", json.dumps(self._run.locate()))
        self._run = None

    def request(self, kind: str) -> None:
        """Have all processes do something at the same step; safe in signal handlers."""
        self._pending.add(kind)

    def settle(self, step: int) -> Agreement | None:
        """What all processes do after this step; waits if the answer to a request is not known.

        Raises:
            RankFailedError: Another process failed.
            RankLostError: Another process was killed, or the one with the store.
        """
        while self._is_open and not self._has_answer.wait(POLL_SECONDS):
            self._raise_failure()
        self._raise_failure()
        agreed = self.agreement
        if agreed is None or agreed.step > step:
            return None
        self.agreement = None
        return agreed

    def find_end(self) -> str:
        """The request that ends the run, once one has come.

        Raises:
            RankFailedError: Another process failed.
            RankLostError: As for ``settle``.
        """
        self._raise_failure()
        return self.stop_kind

    def publish_failure(self, report: FailureReport) -> None:
        """Tell the other processes; only the first report counts."""
        self._store.compare_set("failure", "", report.to_text())
        self._store.add("news", 1)

    def find_failure(self, seconds: float) -> FailureReport | None:
        """The first failure of any process; waits for it for some seconds."""
        end = time.monotonic() + seconds
        while True:
            if self.failure is None and self._store.check(["failure"]):
                self.failure = FailureReport.from_text(self._store.get("failure").decode())
            if self.failure is not None or time.monotonic() > end:
                return self.failure
            time.sleep(POLL_SECONDS)

    def find_killed(self) -> int | None:
        """The process that was killed before it could answer a request to end the run.

        Waits for a moment, but not for a process that is only slow.
        """
        end = time.monotonic() + _KILLED_SECONDS
        while self.killed_rank is None and self.failure is None and time.monotonic() < end:
            if self._is_over.is_set() or (self.stop_kind and not self._is_open):
                break
            time.sleep(POLL_SECONDS / 5)
        return self.killed_rank

    def collect_positions(self) -> dict[int, dict[str, Any]]:
        """Where each process is that answers, or where it ended the run; all write their stacks."""
        number = self._store.add("stacks", 1)
        self._store.add("news", 1)
        end = time.monotonic() + _ANSWER_SECONDS
        found: dict[int, dict[str, Any]] = {}
        while len(found) < self._world_size and time.monotonic() < end:
            for rank in range(self._world_size):
                for key in (f"end/{self._number}/{rank}", f"position/{number}/{rank}"):
                    if rank not in found and self._store.check([key]):
                        found[rank] = json.loads(self._store.get(key))
            time.sleep(POLL_SECONDS)
        return found

    def _listen(self) -> None:
        try:
            while not self._is_over.wait(POLL_SECONDS):
                self._receive()
        except Exception as error:  # no request can be answered any more: the run must end
            if not self._is_over.is_set() and self._run is not None:
                logger.debug("lost the connection to the other processes: %s", error)
                self.lost_store = error
                self._run.wake()

    def _receive(self) -> None:
        store, key = self._store, f"{self._number}/request/{self._round}"
        if self._pending:
            store.compare_set(key, "", min(self._pending))
            store.add("news", 1)
        news = store.add("news", 0)
        if news == self._news:
            return
        self._news = news
        if store.check(["failure"]) and self.find_failure(0) is not None:
            self._handle_failure()
        elif store.check([key]):
            self._take_part(store.get(key).decode())
            self._news -= 1  # another request may be waiting
        self._answer_stacks()

    def _take_part(self, kind: str) -> None:
        """Publish the limit of this process, and wait for the answer."""
        run, number = self._run, f"{self._number}/{self._round}"
        assert run is not None
        self._has_answer.clear()
        self._is_open = True
        if kind != TIME:
            self.stop_kind = kind
        # In this order: a main thread that was not woken after its step has counted that step.
        run.wake()
        self._store.set(f"limit/{number}/{self._rank}", str(run.read_step() + 1))
        if self._rank == 0:
            limits = [self._read(f"limit/{number}/{rank}") for rank in range(self._world_size)]
            if None in limits:
                return
            step = max(int(limit or 0) for limit in limits)
            answer = {"step": step, "seconds": run.read_seconds()}
            self._store.set(f"answer/{number}", json.dumps(answer))
        text = self._read(f"answer/{number}")
        if text is None:
            return
        self.agreement = Agreement(kind, **json.loads(text))
        self._pending.discard(kind)
        self._round += 1
        self._is_open = False
        self._has_answer.set()
        run.wake()

    def _read(self, key: str) -> str | None:
        """The value of a key once it is there; None if that will not happen."""
        while not self._store.check([key]):
            if self._is_over.wait(POLL_SECONDS / 5):
                return None
            if self._store.check(["failure"]):
                self.find_failure(0)
                return None
            self.killed_rank = self._processes.find_killed()
            if self.killed_rank is not None:
                return None
        return self._store.get(key).decode()

    def _handle_failure(self) -> None:
        run = self._run
        if run is not None:
            run.wake()
        if self.failure is not None and self.failure.rank != self._rank:
            if not self._is_over.wait(_ABORT_SECONDS):
                self.abort_connections()
            self._is_over.wait()

    def _answer_stacks(self) -> None:
        asked = self._store.add("stacks", 0)
        if asked > self._stack_round and self._run is not None:
            self._stack_round = asked
            where = json.dumps(self._run.describe())
            self._store.set(f"position/{asked}/{self._rank}", where)

    def _raise_failure(self) -> None:
        if self.failure is not None and self.failure.rank != self._rank:
            raise RankFailedError(self.failure)
        if self.killed_rank is not None:
            raise RankLostError.of_rank(self.killed_rank)
        if self.lost_store is not None:
            raise RankLostError.of_store(self.lost_store)
