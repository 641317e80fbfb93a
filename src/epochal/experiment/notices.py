"""Tells people what becomes of a run: a mail in the mailbox, and to whoever ``notify`` names."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, final

from epochal.engine.execute import result_of_error
from epochal.engine.monitor import Monitor
from epochal.errors import RecordError
from epochal.experiment.changes import ChangedError
from epochal.experiment.invocation import command
from epochal.records.announce import VARIABLE
from epochal.records.facts import describe_error
from epochal.records.mail.box import Mailbox
from epochal.records.mail.channel import read_specs
from epochal.records.mail.compose import Story, compose
from epochal.records.mail.expected import Expected, expect, find_silent, is_expected, settle
from epochal.records.mail.letter import now
from epochal.records.mail.outbox import pack, read_outbox
from epochal.records.mail.sending import Sending
from epochal.records.mail.story import END, kind_of, last_lines
from epochal.records.process import host_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.check import Report
    from epochal.engine import RunResult
    from epochal.experiment.record import Record
    from epochal.records.mail.letter import Kind

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0
"""How long a run that is over waits for servers, before it leaves its mail to the outbox."""


@final
class Notices:
    """The mails of one run; whatever goes wrong with them, the run does not notice.

    Args:
        report: Its checked config.
        is_part: Whether it is part of another run, which tells of it.
    """

    def __init__(self, report: Report, *, is_part: bool = False) -> None:
        self._values: dict[str, Any] = report.expanded.to_public()
        self._specs = [] if is_part else read_specs(report.expanded)
        self._is_part = is_part
        self._is_supervised = VARIABLE in os.environ
        self._sending = Sending()
        self._record: Record | None = None
        self._box: Mailbox | None = None
        self._run = ""
        self._begun, self._started = time.monotonic(), now()
        self._was_expected = self._is_over = False

    def begin(self, record: Record) -> Record:
        """Expect a mail from a run; gives its record, which tells of a standstill."""
        self._record = record
        if self._is_part:
            return record
        if record.dir is not None:
            folder, is_exact = record.dir.absolute(), self._values["record"]["exact"]
            self._box = Mailbox(folder.parent if is_exact else folder.parents[2])
            self._run = folder.relative_to(self._box.root).as_posix()
            with _forgiving():
                self._expect(self._box)
            older = threading.Thread(target=self._attend, name="epochal-mailbox", daemon=True)
            older.start()
        return replace(record, on_stall=self.stalled)

    def _expect(self, box: Mailbox) -> None:
        self._was_expected = is_expected(box, self._run)
        metric, mode = self._monitor()
        expected = Expected(
            run=self._run,
            specs=self._specs,
            monitor=metric,
            mode=mode,
            is_supervised=self._is_supervised,
        )
        expect(box, expected)

    def _attend(self) -> None:
        """Do for others what they could not do: tell of lost runs, send what is left."""
        with _forgiving():
            if self._box is not None:
                find_silent(self._box)
                Sending().start([one for one in read_outbox(self._box) if one.is_due])

    def stalled(self, words: str, step: int) -> None:
        """Tell that the run stands still; returns at once, and never raises."""
        with _forgiving():
            story = replace(self._story("stalled"), what=f"stalled {step}", step=step, epoch=None)
            self._post(replace(story, why=words, log=self._log()))

    def write_end(self, record: Record, result: RunResult) -> None:
        """Let a record say how the run ended, and tell of it; also if the disk refuses the former.

        Raises:
            RecordError: The record cannot be written.
        """
        try:
            record.write_end(result)
        except RecordError as error:
            self.ended(result_of_error(error))
            raise
        self.ended(result)

    def ended(self, result: RunResult) -> None:
        """Tell how the run ended, unless somebody was there or it will go on; never raises."""
        self._is_over = True
        if self._is_part or (self._is_supervised and result.status == "failed"):
            return  # the supervisor decides whether that was the end
        with _forgiving():
            kind = kind_of(result.status, result.reason)
            if kind is not None:
                error = describe_error({**vars(result)})
                reason = result.reason if result.status == "stopped" else ""
                story = replace(
                    self._story(kind),
                    seconds=result.seconds or time.monotonic() - self._begun,
                    step=result.steps,
                    epoch=result.epochs,
                    best=result.best,
                    metrics=result.metrics,
                    why=error or ("" if kind == "diverged" else reason),
                    traceback=result.traceback,
                    log="" if kind == "finished" else self._log(result.traceback),
                )
                self._post(story)
            if self._box is not None:
                settle(self._box, self._run)

    def _post(self, story: Story) -> None:
        mail = compose(story)
        self._sending.start(pack(mail, self._specs, self._box))
        if self._box is not None:
            self._box.post(mail)

    def _story(self, kind: Kind) -> Story:
        record, values = self._record, self._values
        facts: dict[str, Any] = {} if record is None else record.facts
        attempts = facts.get("attempts") or [{}]
        sender = {name: facts.get(name) for name in ("variant", "runner")}
        sender |= {name: values[name] for name in ("project", "desc")}
        sender |= {"started": attempts[-1].get("started") or self._started, "host": host_name()}
        return Story(
            kind=kind,
            tag=str(values["tag"]),
            run=self._run,
            folder="" if self._box is None else str(self._box.root / self._run),
            attempt=0 if record is None else getattr(record.writer, "attempt", 0),
            what=END,
            sender=sender,
            seconds=time.monotonic() - self._begun,
            monitor=self._monitor()[0],
        )

    def _monitor(self) -> tuple[str, str]:
        wanted = self._values.get("monitor")
        monitor = None if wanted is None else Monitor.parse(wanted)
        return ("", "") if monitor is None else (monitor.metric, monitor.mode)

    def _log(self, traceback: str = "") -> str:
        path = None if self._record is None else self._record.log_path
        return "" if path is None else last_lines(path, without=traceback)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if self._record is not None and not self._is_over and error is not None:
            self._leave(error)
        for parcel in self._sending.wait(PATIENCE_SECONDS):
            what = parcel.error or "no answer yet"
            rest = f"`{command()} mail --send` tries again" if parcel.path else "it is lost"
            logger.warning("not sent by %s: %s; %s", parcel.spec.get("type"), what, rest)

    def _leave(self, error: BaseException) -> None:
        """The run could not say how it ended: it was refused, told to end, or had no disk."""
        if isinstance(error, ChangedError):  # the record is as it was, and so is this
            if self._box is not None and not self._was_expected:
                settle(self._box, self._run)
        else:
            self.ended(result_of_error(error))


@contextmanager
def _forgiving() -> Iterator[None]:
    """Let nothing out of a block: no mail is worth more than a run."""
    try:
        yield
    except Exception as error:
        logger.warning("no mail could be written, and the run goes on: %s", error)
