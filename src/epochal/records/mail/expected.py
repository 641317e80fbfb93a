"""Runs from which a mail is expected, and the mail of those that ended without one."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.records.heartbeat import FILE_NAME as HEARTBEAT
from epochal.records.heartbeat import is_silent
from epochal.records.lease import SILENCE_SECONDS
from epochal.records.mail.box import Mailbox
from epochal.records.mail.compose import compose
from epochal.records.mail.letter import identify, now
from epochal.records.mail.outbox import pack
from epochal.records.mail.story import kind_of, tell
from epochal.records.process import host_name, is_gone, process_token
from epochal.records.read import read_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from epochal.records.mail.channel import Spec
    from epochal.records.mail.letter import Kind, Mail
    from epochal.records.mail.outbox import Parcel

_FOLDER = "expected"
_CLAIMED = ".claimed"
_STALE_SECONDS = 60.0
_AT_WORK = ("starting", "running")


@final
@dataclass(frozen=True, kw_only=True)
class Expected:
    """A run that has not told of its end yet."""

    run: str
    """Its folder, from the folder of all runs."""

    specs: Sequence[Spec] = ()
    """Who is told of it, as the section ``notify`` says, with ``${env:NAME}`` where that stood."""

    monitor: str = ""
    mode: str = ""
    """The metric that decides, and which way is better."""

    owner: Mapping[str, Any] = field(default_factory=dict)
    """The process that tells of its end: the run's own, or that of its supervisor."""

    is_supervised: bool = False


@final
@dataclass(frozen=True, slots=True)
class Posted:
    """A mail in the box, and what is to be sent of it."""

    mail: Mail
    parcels: list[Parcel]


def expect(box: Mailbox, expected: Expected) -> None:
    """Note that a mail will come from a run; may raise OSError."""
    folder = box.make_folder(_FOLDER)
    owner = {"pid": os.getpid(), "host": host_name(), "process": process_token(os.getpid())}
    if expected.is_supervised:
        parent = os.getppid()
        owner = {"pid": parent, "host": host_name(), "process": process_token(parent)}
    values = {
        "run": expected.run,
        "notify": list(expected.specs),
        "monitor": expected.monitor,
        "mode": expected.mode,
        "owner": owner,
        "supervised": expected.is_supervised,
        "time": now(),
    }
    durable.write_json(folder / _name(expected.run), values)


def settle(box: Mailbox, run: str) -> None:
    """Note that a run has told of its end, or that nobody needs to hear of it."""
    with suppress(OSError):
        (box.folder / _FOLDER / _name(run)).unlink(missing_ok=True)


def is_expected(box: Mailbox, run: str) -> bool:
    """Whether a mail will come from a run."""
    return (box.folder / _FOLDER / _name(run)).exists()


def find_box(folder: Path) -> tuple[Mailbox, str] | None:
    """The mailbox in which a run is expected, and the run as that knows it; None for none."""
    for root in folder.absolute().parents:
        run = folder.absolute().relative_to(root).as_posix()
        if is_expected(Mailbox(root), run):
            return Mailbox(root), run
    return None


def find_silent(box: Mailbox) -> list[Posted]:
    """Post the mails of runs that ended without one: killed, or gone with their machine.

    Each is posted once, however many processes look at the same time. Nothing is raised where
    the box cannot be written: then somebody else will do it.
    """
    posted = []
    for path in _paths(box):
        expected = _read(path)
        with suppress(OSError):
            if expected is None or not (box.root / expected.run).is_dir():  # deleted, or moved
                path.unlink(missing_ok=True)
            elif not _is_alive(box, expected) and (mail := _post_silent(box, expected, path)):
                posted.append(mail)
    return posted


def conclude(box: Mailbox, run: str, *, kind: Kind, why: str = "") -> Posted:
    """Post the mail about the end of an expected run for it, and expect no other."""
    expected = _read(box.folder / _FOLDER / _name(run)) or Expected(run=run)
    posted = _post(box, expected, kind, why)
    settle(box, run)
    return posted


def _post_silent(box: Mailbox, expected: Expected, path: Path) -> Posted | None:
    summary = read_run(box.root / expected.run).summary
    if summary.status in _AT_WORK:  # somebody goes on with it, or still saves
        return None
    mine = _claim(path)
    if mine is None:
        return None
    kind = kind_of("lost" if summary.status == "damaged" else summary.status, summary.reason)
    posted = None if kind is None else _post(box, expected, kind)
    durable.remove_file(mine)
    return posted


def _post(box: Mailbox, expected: Expected, kind: Kind, why: str = "") -> Posted:
    record = read_run(box.root / expected.run)
    told = {"monitor": expected.monitor, "mode": expected.mode, "why": why}
    mail = compose(tell(record, kind, run=expected.run, **told))
    parcels = pack(mail, expected.specs, box)
    box.post(mail)
    return Posted(mail, parcels)


def _is_alive(box: Mailbox, expected: Expected) -> bool:
    """Whether the process that tells of its end may still do so."""
    owner, folder = expected.owner, box.root / expected.run
    pid, host, token = (owner.get(name) for name in ("pid", "host", "process"))
    if not isinstance(pid, int) or not isinstance(host, str):
        return False
    if host == host_name():
        return not is_gone(pid, host=host, token=token if isinstance(token, str) else "")
    if not expected.is_supervised:
        return not is_silent(folder)
    try:  # between two processes of the run there is no heart to beat
        return time.time() - (folder / HEARTBEAT).stat().st_mtime < SILENCE_SECONDS
    except OSError:
        return True


def _claim(path: Path) -> Path | None:
    """Take a note away from everybody else; None if another process was first."""
    mine = path.with_name(f".{path.stem.lstrip('.')}.{os.getpid()}-{os.urandom(4).hex()}{_CLAIMED}")
    try:
        os.utime(path)  # before it has its new name, under which only old ones are taken over
        durable.rename(path, mine)
    except OSError:
        if path.exists():
            raise
        return None
    return mine


def _paths(box: Mailbox) -> list[Path]:
    """Every note, also those that a process took and left when it was killed."""
    folder = box.folder / _FOLDER
    stale = []
    for path in folder.glob(f".*{_CLAIMED}"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                stale.append(path)
    return sorted(folder.glob("[!.]*.json")) + stale


def _name(run: str) -> str:
    return f"{identify(run)}.json"


def _read(path: Path) -> Expected | None:
    value = durable.find_object(path)
    run, specs, owner = value.get("run"), value.get("notify"), value.get("owner")
    if not isinstance(run, str) or not run:
        return None
    return Expected(
        run=run,
        specs=[spec for spec in specs if isinstance(spec, dict) and "type" in spec]
        if isinstance(specs, list)
        else [],
        monitor=str(value.get("monitor") or ""),
        mode=str(value.get("mode") or ""),
        owner=owner if isinstance(owner, dict) else {},
        is_supervised=value.get("supervised") is True,
    )
