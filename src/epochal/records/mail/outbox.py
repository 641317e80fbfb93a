"""What is still to be sent: one small file for each mail and each who gets it."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.records.mail.channel import SendError, build_channel, fill_in, hide, split
from epochal.records.mail.letter import Mail, read_mail

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from epochal.records.mail.box import Mailbox
    from epochal.records.mail.channel import Spec

_PAUSES = (60.0, 300.0, 1800.0, 7200.0, 21600.0)
"""Seconds until another process tries again, after each failure."""

MAX_TRIES = 12
"""After so many failures it is left to ``epochal mail --send``."""


@final
@dataclass(frozen=True, kw_only=True)
class Parcel:
    """A mail for one who gets it."""

    mail: Mail
    spec: Spec
    """Its entry of ``notify``, with ``${env:NAME}`` where that stood."""

    path: Path | None = None
    """Its file; None if it is in memory only, and lost if it is not sent."""

    tries: int = 0
    due: float = 0.0
    """When to try again, in seconds since 1970."""

    error: str = ""
    is_final: bool = False
    """Whether nobody tries again unless a person asks for it."""

    @property
    def is_due(self) -> bool:
        """Whether it is time to try."""
        return not self.is_final and time.time() >= self.due

    def send(self, *, seconds: float) -> Parcel | None:
        """Try to send it; None if it was sent, or else what is left to be sent.

        Whatever goes wrong is told by what is left, and nothing is raised.
        """
        filled: Mapping[str, Any] = {}
        try:
            filled = fill_in(self.spec)
            build_channel(filled).send(self.mail, seconds=seconds)
        except SendError as error:
            return self._fail(str(error), filled, is_final=error.is_final)
        except Exception as error:  # of a library or a server: no mail is worth more than a run
            return self._fail(f"{type(error).__name__}: {error}", filled)
        self._remove()
        return None

    def _fail(self, what: str, filled: Spec, *, is_final: bool = False) -> Parcel:
        tries = self.tries + 1
        failed = replace(
            self,
            tries=tries,
            due=time.time() + _PAUSES[min(tries, len(_PAUSES)) - 1],
            error=hide(" ".join(what.split()), self.spec, filled),
            is_final=is_final or tries >= MAX_TRIES,
        )
        with suppress(OSError):
            failed.write()
        return failed

    def write(self) -> None:
        """Bring it onto the disk, if it has a file there; may raise OSError."""
        if self.path is not None:
            state = {"tries": self.tries, "due": self.due, "error": self.error}
            values = {"mail": self.mail.to_json(), "notify": self.spec, **state}
            durable.write_json(self.path, values | {"final": self.is_final})

    def _remove(self) -> None:
        if self.path is not None:
            now = _read(self.path)  # a later mail may have taken its place meanwhile
            with suppress(OSError):
                if now is not None and now.mail.time == self.mail.time:
                    durable.remove_file(self.path)


def pack(mail: Mail, specs: Iterable[Spec], box: Mailbox | None) -> list[Parcel]:
    """Parcels of a mail, one for each who gets it; on disk if there is a box that takes them."""
    folder: Path | None = None
    wanted = [spec for spec in specs if not spec.get("kinds") or mail.kind in spec["kinds"]]
    single = [one for spec in wanted for one in split(spec)]
    if box is not None and single:
        with suppress(OSError):  # the disk may be full, but the network is not
            folder = box.make_folder("outbox")
    parcels = []
    for index, spec in enumerate(single):
        path = None if folder is None else folder / f"{mail.id}-{index}.json"
        parcel = Parcel(mail=mail, spec=spec, path=path)
        try:
            parcel.write()
        except OSError:
            parcel = replace(parcel, path=None)
        parcels.append(parcel)
    return parcels


def read_outbox(box: Mailbox) -> list[Parcel]:
    """Everything that is still to be sent, oldest first."""
    found = (_read(path) for path in (box.folder / "outbox").glob("[!.]*.json"))
    parcels = (parcel for parcel in found if parcel is not None)
    return sorted(parcels, key=lambda parcel: (parcel.mail.time, str(parcel.path)))


def _read(path: Path) -> Parcel | None:
    value = durable.find_object(path)
    parts = [value.get(name) for name in ("mail", "notify")]
    mail = read_mail(parts[0]) if isinstance(parts[0], dict) else None
    if mail is None or not isinstance(parts[1], dict) or "type" not in parts[1]:
        return None
    tries, due = value.get("tries"), value.get("due")
    return Parcel(
        mail=mail,
        spec=parts[1],
        path=path,
        tries=tries if isinstance(tries, int) else 0,
        due=float(due) if isinstance(due, int | float) else 0.0,
        error=str(value.get("error") or ""),
        is_final=value.get("final") is True,
    )


@contextmanager
def claimed(parcel: Parcel) -> Iterator[Parcel | None]:
    """A parcel as it is now, for this process alone; None if another one sends or has sent it."""
    if parcel.path is None or sys.platform == "win32":
        yield parcel
        return
    try:
        descriptor = os.open(parcel.path, os.O_RDONLY)
    except OSError:
        # Gone: it was sent. Or else nobody can lock it, and it may be sent twice.
        yield None if not parcel.path.exists() else parcel
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        except OSError:  # some network file systems cannot lock
            pass
        now = _read(parcel.path)
        is_later = now is not None and now.tries > parcel.tries
        yield None if now is None or is_later else replace(parcel, mail=now.mail)
    finally:
        os.close(descriptor)
