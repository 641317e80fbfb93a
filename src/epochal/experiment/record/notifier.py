"""Sends mails about a run: to the mailbox, and to the recipients of ``notify``."""

from __future__ import annotations

import logging
import os
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, final

from epochal.engine.execute import LEASE_LOST, result_of_error
from epochal.engine.interfaces.monitor import Monitor
from epochal.engine.process.grace_period import end_stalled_process
from epochal.errors import RecordError
from epochal.experiment.resume.changes import ChangedError
from epochal.records.folder.folder import RUN_FILE_VARIABLE
from epochal.records.folder.reader import describe_error
from epochal.records.layout.process import host_name, is_in_foreground, utc_now
from epochal.records.mail.compose import END, MailContent, compose, last_lines, mail_kind
from epochal.records.mail.lost_run_mail import (
    ExpectedMail,
    cancel_expected,
    expect_mail,
    find_mailbox,
    is_expected,
)
from epochal.records.mail.mailbox import Mailbox
from epochal.records.mail.outbox import BackgroundSender, queue_mail, read_specs
from epochal.records.mail.signing import KeyUnusableError
from epochal.text.command import epochal_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from epochal.check import CheckReport
    from epochal.engine import RunResult
    from epochal.experiment.record.open_record import OpenRecord
    from epochal.records.mail.mailbox import Kind

logger = logging.getLogger(__name__)

SEND_SECONDS = 5.0
"""How long an ended run waits for servers before it leaves its mail in the outbox."""


@final
class Notifier:
    """The mails of one run; no error about mail reaches the run.

    A run that is part of another run sends no mail; a trial of a sweep mails failures only.
    """

    def __init__(
        self, report: CheckReport, *, is_part: bool = False, is_trial: bool = False
    ) -> None:
        self._values: dict[str, Any] = report.expanded.to_public()
        self._specs = [] if is_part else read_specs(report.expanded)
        self._is_part, self._is_trial = is_part, is_trial
        self._is_supervised = RUN_FILE_VARIABLE in os.environ
        self._sender = BackgroundSender()
        self._record: OpenRecord | None = None
        self._box: Mailbox | None = None
        self._run = ""
        self._begun, self._started = time.monotonic(), utc_now()
        self._was_expected = self._is_over = False

    def begin(self, record: OpenRecord) -> OpenRecord:
        """Register that a mail is expected; returns the record, which also reports stalls."""
        self._record = record
        if self._is_part:
            return replace(record, on_stall=self.stalled, is_supervised=self._is_supervised)
        if record.dir is not None:
            self._box, self._run = self._choose_mailbox(record, record.dir.absolute())
            with _errors_logged():
                self._expect(self._box)
        return replace(record, on_stall=self.stalled, is_supervised=self._is_supervised)

    def _choose_mailbox(self, record: OpenRecord, folder: Path) -> tuple[Mailbox, str]:
        """The mailbox of the runs folder, and the run's name in it; a moved run's is beside it."""
        if record.resume_plan is not None:
            return find_mailbox(folder) or (Mailbox(folder.parent), folder.name)
        root = folder.parent if self._values["record"]["exact"] else folder.parents[2]
        return Mailbox(root), folder.relative_to(root).as_posix()

    def _expect(self, box: Mailbox) -> None:
        self._was_expected = is_expected(box, self._run)
        metric, mode = self._monitor()
        expected = ExpectedMail(
            run=self._run,
            specs=self._specs,
            monitor=metric,
            mode=mode,
            is_supervised=self._is_supervised,
        )
        try:
            expect_mail(box, expected)
        except KeyUnusableError as error:
            what, _, hint = str(error).partition("\n  ")
            logger.warning(
                "mail cannot be signed, so only this process sends it: %s",
                f"{what}; {hint}" if hint else what,
            )

    def stalled(self, words: str, step: int) -> None:
        """Report that the run makes no progress; never raises.

        A supervised process ends then, so that the supervisor starts the run again.
        """
        if not self._is_part:
            with _errors_logged():
                content = replace(self._content("stalled"), event=f"stalled {step}", step=step)
                self._post(replace(content, epoch=None, why=words, log=self._log()))
        if self._is_supervised and self._record is not None:
            self._sender.wait(SEND_SECONDS)
            logger.warning("ending this process, so that the run is started again")
            end_stalled_process(self._record.writer, words, step)

    def write_end(self, record: OpenRecord, result: RunResult) -> None:
        """Write the end of the run to its record and mail it, even if writing fails."""
        try:
            record.write_end(result)
        except RecordError as error:
            self.ended(result_of_error(error))
            raise
        self.ended(result)

    def ended(self, result: RunResult) -> None:
        """Mail how the run ended, unless a user ended it or it will be resumed; never raises."""
        self._is_over = True
        if self._is_part or (self._is_supervised and result.status == "failed"):
            return  # the supervisor decides whether it restarts the run
        with _errors_logged():
            kind = mail_kind(result.status, result.reason)
            if kind is not None and not (kind == "finished" and self._is_trial):
                error = describe_error({**vars(result)})
                reason = result.reason if result.status == "stopped" else ""
                content = replace(
                    self._content(kind),
                    seconds=result.seconds or time.monotonic() - self._begun,
                    step=result.steps,
                    epoch=result.epochs,
                    best=result.best,
                    metrics=result.metrics,
                    why=error or ("" if kind == "diverged" else reason),
                    traceback=result.traceback,
                    log="" if kind == "finished" else self._log(result.traceback),
                )
                self._post(content)
            if self._box is not None and result.reason != LEASE_LOST:  # else it has a new owner
                cancel_expected(self._box, self._run)

    def _post(self, content: MailContent) -> None:
        mail = replace(compose(content), is_read=is_in_foreground())
        self._sender.start(queue_mail(mail, self._specs, self._box))
        if self._box is not None:
            self._box.post(mail)

    def _content(self, kind: Kind) -> MailContent:
        record, values = self._record, self._values
        facts: dict[str, Any] = {} if record is None else record.facts
        attempts = facts.get("attempts") or [{}]
        sender = {name: facts.get(name) for name in ("variant", "runner")}
        sender |= {name: values[name] for name in ("project", "desc")}
        sender |= {"started": attempts[-1].get("started") or self._started, "host": host_name()}
        return MailContent(
            kind=kind,
            tag=str(values["tag"]),
            run=self._run,
            folder="" if self._box is None else str(self._box.root / self._run),
            attempt=0 if record is None else getattr(record.writer, "attempt", 0),
            event=END,
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
            self._end_with(error)
        for delivery in self._sender.wait(SEND_SECONDS):
            what = delivery.error or "no answer yet"
            rest = (
                f"`{epochal_command()} mail --send` tries again" if delivery.path else "it is lost"
            )
            logger.warning("not sent by %s: %s; %s", delivery.spec.get("type"), what, rest)

    def _end_with(self, error: BaseException) -> None:
        """Report a run that an error ended before it could report its end itself."""
        if isinstance(error, ChangedError):  # a refused resume leaves everything as it was
            if self._box is not None and not self._was_expected:
                cancel_expected(self._box, self._run)
        else:
            self.ended(result_of_error(error))


@contextmanager
def _errors_logged() -> Iterator[None]:
    """Log errors of a block instead of raising them: mail must never end a run."""
    try:
        yield
    except Exception as error:
        logger.warning("no mail could be written; the run continues: %s", error)
