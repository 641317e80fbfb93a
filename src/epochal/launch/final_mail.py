"""The mail about the end of a supervised run, sent with retries by its supervisor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.errors import EpochalError
from epochal.launch.restart_policy import SUCCESS
from epochal.records.find import read_run
from epochal.records.mail.compose import MailContent, compose, mail_kind
from epochal.records.mail.lost_run_mail import cancel_expected, find_mailbox, is_expected, post_end
from epochal.records.mail.mailbox import Mailbox
from epochal.records.mail.outbox import (
    RETRY_SECONDS,
    BackgroundSender,
    queue_mail,
    read_outbox,
)

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.launch.restart_policy import ProcessExit, RestartDecision
    from epochal.records.mail.mailbox import Kind, Mail
    from epochal.records.mail.outbox import Delivery, Spec

SEND_SECONDS = 60.0
"""How long an ending supervisor waits for servers, with retries."""

_INTERRUPTED = 130


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
        if end.code == _INTERRUPTED:
            cancel_expected(*found)
        else:
            mail = post_end(*found, kind=_kind(folder, decision), why=why)
    elif end.code not in (SUCCESS, _INTERRUPTED) and (settings := find_settings()) is not None:
        mail = compose(MailContent(kind="gave_up", tag=settings.tag, why=why or f"it {end}"))
        box = Mailbox(settings.root)
        deliveries = queue_mail(mail, settings.specs, box)
        box.post(mail)
    if found is not None:
        box, run = found
        deliveries += [one for one in read_outbox(box) if one.mail.run == run and not one.is_final]
    return mail, deliveries


def _kind(folder: Path, decision: RestartDecision) -> Kind:
    summary = read_run(folder).summary
    found = mail_kind(summary.status, summary.reason)
    return "gave_up" if decision.has_given_up or found is None or found == "lost" else found
