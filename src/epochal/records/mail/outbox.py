"""The outbox: mails that are still to be sent, one small file per recipient, and the sender."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.records.mail.channel import (
    SendError,
    build_channel,
    mask_secrets,
    resolve_environment,
    split_recipients,
)
from epochal.records.mail.mailbox import OUTBOX, Mail, parse_mail

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from epochal.records.mail.channel import Spec
    from epochal.records.mail.mailbox import Mailbox

RETRY_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Pauses between the attempts of one process."""

_TIMEOUT_SECONDS = 15.0
"""How long one response of a server may take."""


@final
@dataclass(frozen=True, kw_only=True)
class Delivery:
    """One mail to one recipient."""

    mail: Mail
    spec: Spec
    """The recipient's entry of ``notify``, with ``${env:NAME}`` unresolved."""

    path: Path | None = None
    """Its file in the outbox; None if it exists in memory only."""

    error: str = ""
    """Why the last attempt failed."""

    is_final: bool = False
    """Whether the server refused it permanently; only ``epochal mail --send`` tries it again."""

    def send_alone(self) -> Delivery | None:
        """Send it unless another process is doing so or has done so; None if it is sent."""
        if self.path is None:
            return self.send()
        with locked(self.path) as is_mine:
            current = _read(self.path) if is_mine else None
            return None if current is None else current.send()

    def send(self) -> Delivery | None:
        """Try once; None if it was sent, otherwise the delivery with the error. Never raises."""
        resolved: Mapping[str, Any] = {}
        try:
            resolved = resolve_environment(self.spec)
            build_channel(resolved).send(self.mail, seconds=_TIMEOUT_SECONDS)
        except SendError as error:
            return self._fail(str(error), resolved, is_final=error.is_final)
        except Exception as error:  # of a library or a server: mail must never end a run
            return self._fail(f"{type(error).__name__}: {error}", resolved)
        self._remove()
        return None

    def _fail(self, what: str, resolved: Spec, *, is_final: bool = False) -> Delivery:
        error = mask_secrets(" ".join(what.split()), self.spec, resolved)
        failed = replace(self, error=error, is_final=is_final)
        with suppress(OSError):
            failed.write()
        return failed

    def write(self) -> None:
        """Write its file, if it has one; may raise OSError."""
        if self.path is not None:
            values = {"mail": self.mail.to_json(), "notify": self.spec}
            state = {"error": self.error, "final": self.is_final}
            durable.write_json(self.path, values | state)

    def _remove(self) -> None:
        if self.path is not None:
            current = _read(self.path)  # a later mail may have replaced it meanwhile
            with suppress(OSError):
                if current is not None and current.mail.time == self.mail.time:
                    durable.remove_file(self.path)


def queue_mail(mail: Mail, specs: Iterable[Spec], box: Mailbox | None) -> list[Delivery]:
    """Put a mail into the outbox for each recipient; kept in memory if the disk refuses it."""
    folder: Path | None = None
    wanted = [spec for spec in specs if not spec.get("kinds") or mail.kind in spec["kinds"]]
    single = [one for spec in wanted for one in split_recipients(spec)]
    if box is not None and single:
        with suppress(OSError):  # a full disk must not keep the mail from the network
            folder = box.make_folder(OUTBOX)
    deliveries = []
    for index, spec in enumerate(single):
        path = None if folder is None else folder / f"{mail.id}-{index}.json"
        delivery = Delivery(mail=mail, spec=spec, path=path)
        try:
            delivery.write()
        except OSError:
            delivery = replace(delivery, path=None)
        deliveries.append(delivery)
    return deliveries


def read_outbox(box: Mailbox) -> list[Delivery]:
    """All unsent deliveries, oldest first."""
    found = (_read(path) for path in (box.folder / OUTBOX).glob("[!.]*.json"))
    deliveries = (delivery for delivery in found if delivery is not None)
    return sorted(deliveries, key=lambda delivery: (delivery.mail.time, str(delivery.path)))


def _read(path: Path) -> Delivery | None:
    value = durable.find_object(path)
    mail, spec = (value.get(name) for name in ("mail", "notify"))
    parsed = parse_mail(mail) if isinstance(mail, dict) else None
    if parsed is None or not isinstance(spec, dict) or "type" not in spec:
        return None
    error, is_final = str(value.get("error") or ""), value.get("final") is True
    return Delivery(mail=parsed, spec=spec, path=path, error=error, is_final=is_final)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether a file is there and no other process has locked it; never waits.

    The lock ends with the process. Where files cannot be locked, every process gets True.
    """
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        yield path.exists()
        return
    try:
        if sys.platform != "win32":
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    except OSError:  # some network file systems have no locks
        yield True
    else:
        yield path.exists()
    finally:
        os.close(descriptor)


@final
class BackgroundSender:
    """Sends deliveries, each in a daemon thread that retries for a while.

    Args:
        retry_seconds: Pauses between attempts; after the last attempt a delivery stays unsent.
    """

    def __init__(self, retry_seconds: Sequence[float] = RETRY_SECONDS) -> None:
        self._retry_seconds = tuple(retry_seconds)
        self._is_stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._unsent: dict[int, Delivery] = {}

    def start(self, deliveries: Iterable[Delivery]) -> None:
        """Start to send these; returns at once."""
        for delivery in deliveries:
            key = len(self._threads)
            self._unsent[key] = delivery
            thread = threading.Thread(
                target=self._send, args=(key, delivery), name="epochal-mail", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def wait(self, seconds: float) -> list[Delivery]:
        """Wait at most so long, then stop retrying; gives what is unsent, with errors."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._is_stopped.set()
        return [delivery for _, delivery in sorted(self._unsent.items())]

    def _send(self, key: int, delivery: Delivery) -> None:
        for pause in (*self._retry_seconds, None):
            failed = delivery.send_alone()
            if failed is None:
                del self._unsent[key]
                return
            self._unsent[key] = delivery = failed
            if failed.is_final or pause is None or self._is_stopped.wait(pause):
                return
