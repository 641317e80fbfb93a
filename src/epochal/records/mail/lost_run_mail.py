"""Mails about runs that ended without reporting it, because their process was killed."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.errors import RecordError
from epochal.records.find import read_run
from epochal.records.layout.lease import HEARTBEAT_FILE, is_owner_alive
from epochal.records.layout.process import (
    describe_process,
    is_owner_gone,
    shares_process_ids,
    utc_now,
)
from epochal.records.layout.run_status import ACTIVE_STATUSES
from epochal.records.mail.compose import compose, describe_run, mail_kind
from epochal.records.mail.mailbox import Mailbox, is_run_name, make_id
from epochal.records.mail.outbox import locked, queue_mail
from epochal.records.mail.signing import SIGNATURE, KeyUnusableError, is_signed, write_signed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from epochal.records.mail.mailbox import Kind, Mail
    from epochal.records.mail.outbox import Delivery, Spec

_FOLDER = "expected"
_SUPERVISED_SECONDS = 600.0
"""How long a supervised run may have no heartbeat, between two of its processes."""


@final
@dataclass(frozen=True, kw_only=True)
class ExpectedMail:
    """The mail that a run will send at its end, and how to write it if the run cannot."""

    run: str
    """Its folder, relative to the folder of all runs."""

    specs: Sequence[Spec] = ()
    """The entries of ``notify``, with ``${env:NAME}`` unresolved."""

    monitor: str = ""
    mode: str = ""
    """The monitored metric, and whether smaller or larger is better."""

    owner: Mapping[str, Any] = field(default_factory=dict)
    """The process that reports the end: the run's own, or its supervisor."""

    is_supervised: bool = False


def expect_mail(box: Mailbox, expected: ExpectedMail) -> None:
    """Note that this process, or its supervisor, will report the end of a run.

    May raise OSError, or KeyUnusableError if it has recipients that cannot be signed; then the
    note is there, without them.
    """
    folder = box.make_folder(_FOLDER)
    pid = os.getppid() if expected.is_supervised else os.getpid()
    values = {
        "run": expected.run,
        "notify": list(expected.specs),
        "monitor": expected.monitor,
        "mode": expected.mode,
        "owner": describe_process(pid),
        "supervised": expected.is_supervised,
        "time": utc_now(),
    }
    path = folder / _name(expected.run)
    try:
        # A note without recipients sends nothing and needs no key.
        (write_signed if expected.specs else durable.write_json)(path, values)
    except KeyUnusableError:
        durable.write_json(path, {**values, "notify": []})
        raise


def cancel_expected(box: Mailbox, run: str) -> None:
    """Remove the note of a run: its end was reported, or needs no mail."""
    with suppress(OSError):
        (box.folder / _FOLDER / _name(run)).unlink(missing_ok=True)


def is_expected(box: Mailbox, run: str) -> bool:
    """Whether a run has not reported its end yet."""
    return (box.folder / _FOLDER / _name(run)).exists()


def find_mailbox(folder: Path) -> tuple[Mailbox, str] | None:
    """The mailbox above a run's folder, and the run's name in it; None if there is none."""
    folder = folder.absolute()
    for root in folder.parents:
        if Mailbox(root).folder.is_dir():
            return Mailbox(root), folder.relative_to(root).as_posix()
    return None


def post_lost_runs(box: Mailbox) -> list[Mail]:
    """Post and queue the mails of runs that ended without one; sends nothing.

    Each is posted once, however many processes do this at the same time. A note that cannot be
    processed is left for the next call, and one that another user signed is left to that user.
    """
    posted = []
    for path in sorted((box.folder / _FOLDER).glob("[!.]*.json")):
        with suppress(OSError, RecordError), locked(path) as is_mine:
            expected = _read(path)
            if not is_mine or _is_of_another_user(path):
                continue
            if expected is None or not (box.root / expected.run).is_dir():  # deleted, or moved
                path.unlink(missing_ok=True)
            elif not _is_owner_alive(box, expected):
                posted += _post_lost(box, expected, path)
    return posted


def post_end(
    box: Mailbox,
    run: str,
    *,
    kind: Kind,
    why: str = "",
    find_specs: Callable[[], Sequence[Spec]] = tuple,
) -> tuple[Mail, list[Delivery]]:
    """Post and queue the mail about the end of a run on its behalf, and remove its note.

    ``find_specs`` gives the recipients if the note has none that this user signed.
    """
    path = box.folder / _FOLDER / _name(run)
    expected = _read(path) or ExpectedMail(run=run)
    if not is_signed(path, durable.find_object(path)):
        expected = replace(expected, specs=find_specs())
    posted = _post(box, expected, kind, why)
    cancel_expected(box, run)
    return posted


def _post_lost(box: Mailbox, expected: ExpectedMail, path: Path) -> list[Mail]:
    summary = read_run(box.root / expected.run).summary
    if summary.status in ACTIVE_STATUSES:  # another process resumed it, or it is still saving
        return []
    kind = mail_kind("lost" if summary.status == "damaged" else summary.status, summary.reason)
    posted = [] if kind is None else [_post(box, expected, kind)[0]]
    if _read(path) == expected:  # otherwise the resumed run will send another mail
        durable.remove_file(path)
    return posted


def _post(
    box: Mailbox, expected: ExpectedMail, kind: Kind, why: str = ""
) -> tuple[Mail, list[Delivery]]:
    record = read_run(box.root / expected.run)
    facts = {"monitor": expected.monitor, "mode": expected.mode, "why": why}
    mail = compose(describe_run(record, kind, run=expected.run, **facts))
    deliveries = queue_mail(mail, expected.specs, box)
    box.post(mail)
    return mail, deliveries


def _is_owner_alive(box: Mailbox, expected: ExpectedMail) -> bool:
    """Whether the process that reports the end may still do so."""
    folder = box.root / expected.run
    if not expected.is_supervised:
        return is_owner_alive(folder, expected.owner)
    if is_owner_gone(expected.owner):
        return False
    if shares_process_ids(expected.owner):
        return True
    try:  # there is neither lease nor heartbeat between two processes of a supervised run
        return time.time() - (folder / HEARTBEAT_FILE).stat().st_mtime < _SUPERVISED_SECONDS
    except OSError:
        return True


def _name(run: str) -> str:
    return f"{make_id(run)}.json"


def _is_of_another_user(path: Path) -> bool:
    value = durable.find_object(path)
    return SIGNATURE in value and not is_signed(path, value)


def _read(path: Path) -> ExpectedMail | None:
    """The note in a file, with recipients only if this user signed it."""
    value = durable.find_object(path)
    run, specs, owner = value.get("run"), value.get("notify"), value.get("owner")
    if not isinstance(run, str) or not run or not is_run_name(run):
        return None
    specs = specs if isinstance(specs, list) and is_signed(path, value) else []
    return ExpectedMail(
        run=run,
        specs=[spec for spec in specs if isinstance(spec, dict) and "type" in spec],
        monitor=str(value.get("monitor") or ""),
        mode=str(value.get("mode") or ""),
        owner=owner if isinstance(owner, dict) else {},
        is_supervised=value.get("supervised") is True,
    )
