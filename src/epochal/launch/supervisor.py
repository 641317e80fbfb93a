"""Keeps a run alive: restarts it from its checkpoints when it dies, and mails how it ended."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, final

from epochal.errors import (
    DIVERGED,
    INTERRUPTED_EXIT_CODE,
    STALLED_EXIT_CODE,
    DivergedError,
    EpochalError,
)
from epochal.launch.child_process import start_child
from epochal.launch.restart_policy import (
    SUCCESS,
    ProcessExit,
    RestartDecision,
    RestartPolicy,
)
from epochal.records.find import find_record, read_run
from epochal.records.folder import redacted
from epochal.records.folder.checkpoint_manifests import find_newest_checkpoint
from epochal.records.folder.folder import CHECKPOINTS_DIR, FOLDS_DIR, RUN_FILE_VARIABLE, Parent
from epochal.records.folder.reader import describe_error, step_of
from epochal.records.layout.process import utc_now
from epochal.records.layout.run_status import COMPLETED_STATUSES
from epochal.records.mail.compose import MailContent, compose, mail_kind
from epochal.records.mail.lost_run_mail import cancel_expected, find_mailbox, is_expected, post_end
from epochal.records.mail.mailbox import Mailbox
from epochal.records.mail.outbox import RETRY_SECONDS, BackgroundSender, queue_mail, read_outbox

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from epochal.launch.keep_alive_file import KeepAliveFile
    from epochal.records.mail.mailbox import Kind, Mail
    from epochal.records.mail.outbox import Delivery, Spec

_FORWARDED = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP")
_SIGHUP = getattr(signal, "SIGHUP", None)
SEND_SECONDS = 60.0
"""How long an ending supervisor waits for servers, with retries."""


@final
@dataclass(frozen=True, kw_only=True)
class SupervisedCommands:
    """How to start and resume a run."""

    start: Sequence[str]
    """The complete command that starts it."""

    resume: Callable[[Path], Sequence[str]]
    """The complete command that resumes the run in a folder."""

    find_mail_settings: FindMailSettings = lambda: None
    """Where the mail goes about a run that never had a folder; None for no mail."""


@final
@dataclass
class StopRequest:
    """A signal that asked the supervisor to stop, passed on to the current child."""

    child: subprocess.Popen[bytes] | None = None
    number: int = 0
    pipe: tuple[int, int] = field(default_factory=os.pipe)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Pass a signal on; a closed terminal becomes SIGTERM, so that the run saves."""
        self.number = signal.SIGTERM if number == _SIGHUP else number
        if self.child is not None:
            self.child.send_signal(self.number)
        os.write(self.pipe[1], b"!")

    def is_set(self) -> bool:
        """Whether a signal has come."""
        return self.number != 0

    def wait(self, seconds: float) -> None:
        """Wait so long, or until a signal comes."""
        select.select([self.pipe[0]], [], [], seconds)


def supervise(
    commands: SupervisedCommands,
    file: KeepAliveFile,
    *,
    limit: int,
    tell: Callable[[str], None],
    wait: Callable[[StopRequest, float], None] = StopRequest.wait,
) -> int:
    """Restart a run until it is done, given up, or a signal ends it; returns the exit code.

    It gives up after ``limit`` restarts in a row without progress; ``tell`` shows a line to the
    user, ``wait`` waits some seconds or until a signal comes.
    """
    with file.claimed(commands.start):
        return _supervise(commands, file, RestartPolicy(limit), tell, wait)


def _supervise(
    commands: SupervisedCommands,
    file: KeepAliveFile,
    policy: RestartPolicy,
    tell: Callable[[str], None],
    wait: Callable[[StopRequest, float], None],
) -> int:
    with _forwarded_signals() as stop:
        while True:
            end = _run_once(commands, file, stop)
            folder = file.read_run()
            if stop.is_set():
                return _stop(end, file, stop)
            decision = policy.decide(end)
            if not decision.should_restart:
                break
            tell(f"the run {end}; {decision.why}")
            _add_event(folder, "restart", end, why=decision.why)
            wait(stop, decision.delay_seconds)
            if stop.is_set():
                return _stop(end, file, stop)
    # Signals end this process again: Ctrl-C need not wait for a mail server.
    file.remove()
    if decision.has_given_up:
        _add_event(folder, "gave_up", end, why=decision.why)
        tell(f"the run {end}; given up, since {decision.why}")
    elif end.code != SUCCESS:
        tell(f"the run {end}; {decision.why}")
    if send_final_mail(folder, end, decision, commands.find_mail_settings):
        tell("`epochal mail` has the details")
    return end.code if end.code >= 0 else 128 - end.code


def _run_once(commands: SupervisedCommands, file: KeepAliveFile, stop: StopRequest) -> ProcessExit:
    """Run one process, from start to exit."""
    before = file.read_run()
    first_step = _saved_step(before)
    if before is not None and (code := _find_final_code(before)) is not None:
        return ProcessExit(code=code)
    command = commands.start if before is None or first_step is None else commands.resume(before)
    environment = {RUN_FILE_VARIABLE: str(file.run_file)}
    if before is not None and first_step is None:
        environment |= Parent(before.name, "retried").to_environment()
    stop.child = start_child(command, environment)
    if stop.is_set():  # the signal came while the child was being started
        stop.child.send_signal(stop.number)
    code = stop.child.wait()
    stop.child = None
    after = file.read_run()
    if after is None:
        return ProcessExit(code=code)
    if code != SUCCESS:  # perhaps killed when nothing was left to do
        final = _find_final_code(after)
        code = code if final is None else final
    record = find_record(after)
    if code == 1 and record is not None and record.summary.status == "lost":
        # Code that blocked all threads was ended by the watchdog, which could write only stacks.
        code = STALLED_EXIT_CODE
        _post_stall(after)
    saved_step = _saved_step(after) or 0
    step = 0 if record is None else step_of(record)
    return ProcessExit(
        code=code,
        step=max(step, saved_step) if code < 0 else step,  # a killed run reported no last step
        first_step=(first_step or 0) if after == before else 0,
        saved_step=saved_step,
        error=describe_error(record.result) if record is not None and code > 0 else "",
    )


def _post_stall(folder: Path) -> None:
    """Post the mail about a run that hung and could not do so itself."""
    with suppress(OSError, EpochalError):
        if (found := find_mailbox(folder)) is not None and is_expected(*found):
            post_end(*found, kind="stalled", why="no progress; all its threads were blocked")


def _saved_step(folder: Path | None) -> int | None:
    """The step of a run's newest checkpoint, summed over folds; None if it has none."""
    if folder is None:
        return None
    found = [
        find_newest_checkpoint(one / CHECKPOINTS_DIR)[0]
        for one in (folder, *(folder / FOLDS_DIR).glob("*"))
    ]
    steps = [manifest.step for manifest in found if manifest is not None]
    return sum(steps) if steps else None


def _find_final_code(folder: Path) -> int | None:
    """The exit code of a run that needs no other process; None if it does."""
    record = find_record(folder)
    status = "" if record is None else record.summary.status
    if status in COMPLETED_STATUSES:
        return SUCCESS
    return DivergedError.exit_code if status == DIVERGED else None


def _stop(end: ProcessExit, file: KeepAliveFile, stop: StopRequest) -> int:
    """The exit code after a signal; after Ctrl-C no later supervisor continues."""
    if end.code == SUCCESS or stop.number == signal.SIGINT:
        file.remove()
    return end.code if end.code >= 0 else 128 + stop.number


def _add_event(folder: Path | None, kind: str, end: ProcessExit, *, why: str) -> None:
    """Add an event to the record; no other process writes there between two of the run's."""
    if folder is not None:
        event = {"time": utc_now(), "kind": kind, "step": end.step, "code": end.code}
        with suppress(OSError):  # a full disk must not end the supervisor
            redacted.append_line(folder / "events.jsonl", {**event, "error": end.error, "why": why})


@contextmanager
def _forwarded_signals() -> Iterator[StopRequest]:
    """Pass signals on to the child in a block; restores the handlers afterwards."""
    stop = StopRequest()
    numbers = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
    before = {number: signal.signal(number, stop.handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for end in stop.pipe:
            os.close(end)


@final
@dataclass(frozen=True, kw_only=True)
class MailSettings:
    """Where the mail goes about a run that died before it had a folder."""

    root: Path
    """Folder of all runs."""

    tag: str = ""
    specs: Sequence[Spec] = ()
    """The entries of ``notify``."""


FindMailSettings = Callable[[], MailSettings | None]


def send_final_mail(
    folder: Path | None,
    end: ProcessExit,
    decision: RestartDecision,
    find_settings: FindMailSettings,
) -> bool:
    """Post the mail about a run that is not restarted, and send all unsent mail of that run.

    Gives whether there was a mail to post: not if the run reported its end itself, or a user
    ended it. Never raises.
    """
    try:
        mail, deliveries = _post(folder, end, decision, find_settings)
    except (OSError, EpochalError):
        return False
    sender = BackgroundSender(RETRY_SECONDS)
    sender.start(deliveries)
    sender.wait(SEND_SECONDS)
    return mail is not None


def _post(
    folder: Path | None,
    end: ProcessExit,
    decision: RestartDecision,
    find_settings: FindMailSettings,
) -> tuple[Mail | None, list[Delivery]]:
    found = None if folder is None else find_mailbox(folder)
    why = f"it {end}; {decision.why}" if decision.has_given_up else ""
    mail: Mail | None = None
    deliveries: list[Delivery] = []
    if folder is not None and found is not None and is_expected(*found):
        if end.code == INTERRUPTED_EXIT_CODE:
            cancel_expected(*found)
        else:
            kind = _kind(folder, decision)
            find_specs = partial(_find_specs, find_settings)
            mail, deliveries = post_end(*found, kind=kind, why=why, find_specs=find_specs)
    elif (
        end.code not in (SUCCESS, INTERRUPTED_EXIT_CODE)
        and (settings := find_settings()) is not None
    ):
        mail = compose(MailContent(kind="gave_up", tag=settings.tag, why=why or f"it {end}"))
        box = Mailbox(settings.root)
        deliveries = queue_mail(mail, settings.specs, box)
        box.post(mail)
    if found is not None:
        box, run = found
        queued = {one.path for one in deliveries}
        left = [one for one in read_outbox(box) if one.mail.run == run and not one.is_final]
        deliveries += [one for one in left if one.path not in queued]
    return mail, deliveries


def _find_specs(find_settings: FindMailSettings) -> Sequence[Spec]:
    """The recipients that the config of this command names now."""
    try:
        settings = find_settings()
    except (OSError, EpochalError):  # the config was changed
        return ()
    return () if settings is None else settings.specs


def _kind(folder: Path, decision: RestartDecision) -> Kind:
    summary = read_run(folder).summary
    found = mail_kind(summary.status, summary.reason)
    return "gave_up" if decision.has_given_up or found is None or found == "lost" else found
