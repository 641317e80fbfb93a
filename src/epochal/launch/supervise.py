"""Keeps a run alive: starts it, and starts it again from its checkpoints when it dies."""

from __future__ import annotations

import os
import select
import signal
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, final

from epochal.errors import RecordError
from epochal.launch.child import Child
from epochal.launch.farewell import FindHome, say_farewell
from epochal.launch.restarts import PREEMPTED, SUCCESS, Ending, Restarts
from epochal.records import clean
from epochal.records.announce import VARIABLE
from epochal.records.facts import describe_error, step_of
from epochal.records.folder import FOLDS
from epochal.records.manifests import newest_valid
from epochal.records.parent import Parent
from epochal.records.read import RunRecord, read_run
from epochal.records.writer import DONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import FrameType

    from epochal.launch.ticket import Ticket

_FORWARDED = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP")
_HANG_UP = getattr(signal, "SIGHUP", None)


@final
@dataclass(frozen=True, kw_only=True)
class Commands:
    """How a run is started and how it goes on."""

    start: Sequence[str]
    """The whole command that begins it."""

    resume: Callable[[Path], Sequence[str]]
    """The whole command that goes on with the run in a folder."""

    find_home: FindHome = lambda: None
    """Where the mail goes about a run that never had a folder; None for nowhere."""


@final
@dataclass
class _Wish:
    """Whether somebody wants the supervisor to end, and the child that must hear of it."""

    child: Child | None = None
    number: int = 0
    pipe: tuple[int, int] = field(default_factory=os.pipe)

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Pass a signal on; a terminal that closes is no reason not to save."""
        self.number = signal.SIGTERM if number == _HANG_UP else number
        if self.child is not None:
            self.child.tell(self.number)
        os.write(self.pipe[1], b"!")

    def has_come(self) -> bool:
        """Whether somebody wants the end."""
        return self.number != 0

    def wait(self, seconds: float) -> None:
        """Wait, unless somebody wants the end."""
        select.select([self.pipe[0]], [], [], seconds)


def keep_alive(
    commands: Commands,
    ticket: Ticket,
    *,
    limit: int,
    tell: Callable[[str], None],
    wait: Callable[[_Wish, float], None] = _Wish.wait,
) -> int:
    """Look after a run until it is done, hopeless, or unwanted; gives the exit code.

    Args:
        commands: How it is started.
        ticket: What is left from an earlier supervisor, and for a later one.
        limit: How many starts in a row may bring it no further.
        tell: Shows a line to people.
        wait: Waits some seconds, or until somebody wants the end.
    """
    ticket.take(commands.start)
    restarts = Restarts(limit)
    with _hearing() as wish:
        while True:
            ending = _live(commands, ticket, wish)
            folder = ticket.read_run()
            if wish.has_come():
                return _leave(ending, ticket, wish)
            decision = restarts.judge(ending)
            if not decision.is_again:
                ticket.close()
                if decision.is_surrender:
                    _note(folder, "gave_up", ending, why=decision.why)
                    tell(f"the run {ending}; given up, since {decision.why}")
                elif ending.code != SUCCESS:
                    tell(f"the run {ending}; {decision.why}")
                if say_farewell(folder, ending, decision, commands.find_home):
                    tell("`epochal mail` has the whole story")
                return _exit_code(ending.code)
            tell(f"the run {ending}; {decision.why}")
            _note(folder, "restart", ending, why=decision.why)
            wait(wish, decision.delay_seconds)
            if wish.has_come():
                return _leave(ending, ticket, wish)


def _live(commands: Commands, ticket: Ticket, wish: _Wish) -> Ending:
    """One process of the run, from its start to its end."""
    before = ticket.read_run()
    begun = _saved_step(before)
    if before is not None and _is_done(before):
        return Ending(code=SUCCESS)
    command = commands.start if before is None or begun is None else commands.resume(before)
    told = {VARIABLE: str(ticket.run_file)}
    if before is not None and begun is None:
        told |= Parent(before.name, "retried").to_environment()
    wish.child = Child(command, told)
    if wish.has_come():  # it came while the child was being started
        wish.child.tell(wish.number)
    code = wish.child.wait()
    wish.child = None
    after = ticket.read_run()
    if after is None:
        return Ending(code=code)
    if code != SUCCESS and _is_done(after):  # killed when nothing was left to do
        code = SUCCESS
    record = _read(after)
    begun = begun if after == before else 0
    saved = _saved_step(after) or 0
    step = 0 if record is None else step_of(record)
    return Ending(
        code=code,
        step=max(step, saved) if code < 0 else step,  # a killed run could not say how far it was
        begun=begun or 0,
        saved=saved,
        error=describe_error(record.result) if record is not None and code > 0 else "",
    )


def _saved_step(folder: Path | None) -> int | None:
    """The step of a run's newest checkpoint, or of all its folds; None if it has none."""
    if folder is None:
        return None
    found = [newest_valid(one / "checkpoints")[0] for one in (folder, *(folder / FOLDS).glob("*"))]
    steps = [manifest.step for manifest in found if manifest is not None]
    return sum(steps) if steps else None


def _is_done(folder: Path) -> bool:
    record = _read(folder)
    return record is not None and record.summary.status in DONE


def _read(folder: Path) -> RunRecord | None:
    """The record of a run; None if its process was killed before it wrote anything."""
    try:
        return read_run(folder)
    except RecordError:
        return None


def _leave(ending: Ending, ticket: Ticket, wish: _Wish) -> int:
    """End since somebody wants it; after Ctrl-C nothing is left for a later supervisor."""
    if ending.code == SUCCESS or wish.number == signal.SIGINT:
        ticket.close()
    if ending.code in (SUCCESS, PREEMPTED) or ending.code > 0:
        return ending.code
    return 128 + wish.number


def _note(folder: Path | None, kind: str, ending: Ending, *, why: str) -> None:
    """Add an event to the record; between two processes of the run nobody else writes there."""
    if folder is not None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        event = {"time": now, "kind": kind, "step": ending.step, "code": ending.code}
        with suppress(OSError):  # a full disk is no reason to leave the run alone
            clean.append_line(folder / "events.jsonl", {**event, "error": ending.error, "why": why})


def _exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code


@contextmanager
def _hearing() -> Iterator[_Wish]:
    """Pass signals on to the child in a block; handlers are as before when it is over."""
    wish = _Wish()
    numbers = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
    before = {number: signal.signal(number, wish.hear) for number in numbers}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for end in wish.pipe:
            os.close(end)
