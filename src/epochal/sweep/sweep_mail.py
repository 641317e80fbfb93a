"""The mail about a sweep that is done: one for all of its trials."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from epochal.records.layout.process import host_name, is_in_foreground
from epochal.records.mail.compose import END, MailContent, compose
from epochal.records.mail.mailbox import Mailbox
from epochal.records.mail.outbox import BackgroundSender, queue_mail
from epochal.text.formatting import format_count, format_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.sweep.backlog import SweepBacklog

SEND_SECONDS = 5.0
"""How long a sweep waits for servers before it leaves its mail in the outbox."""

logger = logging.getLogger(__name__)


def send_sweep_mail(backlog: SweepBacklog) -> None:
    """Mail the best trial and the counts, to the mailbox and to ``notify``; never raises."""
    try:
        _send(backlog)
    except Exception as error:
        logger.warning("no mail about the sweep could be written: %s", error)


def _send(backlog: SweepBacklog) -> None:
    folder = backlog.folder
    base, settings = folder.read_base(), backlog.settings
    best = None if backlog.best is None else backlog.best.get_objectives(settings)
    mail = compose(
        MailContent(
            kind="sweep_done",
            tag=base.name,
            run=folder.path.relative_to(base.log_dir).as_posix(),
            folder=str(folder.path),
            event=f"{END} {len(backlog.trials)}",
            sender={"project": base.code.project.name, "host": host_name(), "runner": "sweep"},
            seconds=_count_seconds(str(folder.read_facts().get("begun") or "")),
            monitor=settings.objectives[0].metric,
            best=None if best is None else best[0],
            why="\n".join(_describe(backlog)),
        )
    )
    box = Mailbox(base.log_dir)
    sender = BackgroundSender()
    specs = folder.read_notify()
    sender.start(queue_mail(mail, specs, box))
    box.post(replace(mail, is_read=is_in_foreground()))
    for delivery in sender.wait(SEND_SECONDS):
        logger.warning("not sent by %s: %s", delivery.spec.get("type"), delivery.error)


def _describe(backlog: SweepBacklog) -> Iterator[str]:
    states = [one.state for one in backlog.trials.values()]
    rest = [f"{states.count(one)} {one}" for one in ("pruned", "failed") if one in states]
    yield ", ".join([format_count(len(states), "trial"), *rest])
    if backlog.best is not None:
        values = backlog.best.values.items()
        shown = ", ".join(f"{key}={format_value(value)}" for key, value in values)
        yield f"best is trial {backlog.best.number}: {shown}"
    if backlog.stop_reason:
        yield f"stopped: {backlog.stop_reason}"


def _count_seconds(begun: str) -> float | None:
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(begun)).total_seconds()
    except (ValueError, TypeError):
        return None
