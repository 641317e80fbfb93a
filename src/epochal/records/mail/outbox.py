"""The outbox: unsent mails, one small file per recipient, the channel interface, and the sender."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, final

from epochal import durable
from epochal.config import dump, load
from epochal.durable.reading import NO_FOLLOW
from epochal.errors import ConfigError
from epochal.records.mail.mailbox import OUTBOX, Mail, parse_mail
from epochal.records.mail.signing import KeyUnusableError, is_signed, write_signed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from epochal.config import Node
    from epochal.records.mail.mailbox import Mailbox

Spec = Mapping[str, Any]
"""An entry of ``notify`` as plain data."""

_ENV = "env"
"""The entry of a spec with the environment variables that its config declares and it uses."""

_OWN_KEYS = ("type", "kinds", _ENV)
_RECIPIENTS = ("to", "urls")
_HIDDEN = "***"
_SHORTEST_SECRET = 4


class SendError(Exception):
    """A mail could not be sent; with ``is_final``, another attempt would fail too."""

    def __init__(self, what: str, *, is_final: bool = False) -> None:
        super().__init__(what)
        self.is_final = is_final


class Channel(Protocol):
    """Sends mails to one kind of service."""

    def send(self, mail: Mail, *, seconds: float) -> None:
        """Send one mail; each response of the server may take ``seconds``.

        Raises SendError if it was not sent; any other exception counts as temporary.
        """


def read_specs(expanded: Node) -> list[dict[str, Any]]:
    """The entries of ``notify`` in a checked config, with ``${env:NAME}`` unresolved."""
    node = expanded.mapping.get("notify")
    specs: list[dict[str, Any]] = [] if node is None else json.loads(dump(node, "json"))
    declared = [one.value for one in expanded.get("env").elements]
    for spec in specs:
        names = sorted(_names_in_spec(spec).intersection(declared))
        spec.update({_ENV: names} if names else {})
    return specs


def build_channel(spec: Spec) -> Channel:
    """The channel that a checked entry of ``notify`` describes."""
    # Only now: reading a mailbox needs neither smtplib nor urllib.
    from epochal.records.mail.channels import Apprise, Smtp, Webhook

    types: dict[str, Callable[..., Channel]] = {
        "smtp": Smtp,
        "webhook": Webhook,
        "apprise": Apprise,
    }
    channel = types.get(spec["type"])
    if channel is None:
        raise SendError(f"there is no channel {spec['type']!r}", is_final=True)
    return channel(**{key: value for key, value in spec.items() if key not in _OWN_KEYS})


def split_recipients(public: Spec) -> list[dict[str, Any]]:
    """One entry per recipient, so that a retry reaches only those without the mail."""
    for key in _RECIPIENTS:
        several = public.get(key)
        if isinstance(several, list | tuple):
            return [{**public, key: one} for one in several]
    return [dict(public)]


def resolve_environment(public: Spec) -> dict[str, Any]:
    """An entry with each ``${env:NAME}`` replaced by its value; SendError if one is not set.

    Only names that its config declared are read from the environment.
    """
    declared = public.get(_ENV, [])
    if extra := _names_in_spec(public).difference(declared):
        what = f"the config of the run does not declare {', '.join(sorted(extra))} in `env`"
        raise SendError(what, is_final=True)
    try:
        config = load({"env": declared, "notify": [dict(public)]})
        problems = config.problems
    except ConfigError as error:
        raise SendError(str(error), is_final=True) from error
    if problems:
        raise SendError("; ".join(problem.what for problem in problems))
    node = config.root.find("notify.0")
    assert node is not None
    resolved: dict[str, Any] = node.to_plain()
    return resolved


def mask_secrets(text: str, public: Spec, resolved: Spec) -> str:
    """``text`` without any value that came from the environment."""
    kept = set(_leaves(public))
    secrets = {leaf for leaf in _leaves(resolved) if leaf not in kept}
    # The variables themselves too: an error may quote only the secret part of a value.
    secrets |= {os.environ.get(name, "") for leaf in kept for name in _names_in(leaf)}
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, _HIDDEN)
    return text


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for child in value.values():
            yield from _leaves(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _leaves(child)


def _names_in_spec(spec: Spec) -> set[str]:
    return {name for text in _leaves(spec) for name in _names_in(text)}


def _names_in(text: str) -> Iterator[str]:
    """The environment variables that a text refers to."""
    for part in text.split("${env:")[1:]:
        name, closed, _ = part.partition("}")
        if closed:
            yield name.strip()


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
            # A later mail may have replaced it. A file that others changed does not count.
            return (_read(self.path) or self).send() if is_mine else None

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
        with suppress(OSError, KeyUnusableError):
            failed.write()
        return failed

    def write(self) -> None:
        """Write its file, if it has one; may raise OSError or KeyUnusableError."""
        if self.path is not None:
            values = {"mail": self.mail.to_json(), "notify": self.spec}
            state = {"error": self.error, "final": self.is_final}
            write_signed(self.path, values | state)

    def _remove(self) -> None:
        if self.path is not None:
            current = _read(self.path)  # a later mail may have replaced it meanwhile
            with suppress(OSError):
                if current is not None and current.mail.time == self.mail.time:
                    durable.remove_file(self.path)


def queue_mail(mail: Mail, specs: Iterable[Spec], box: Mailbox | None) -> list[Delivery]:
    """Put a mail into the outbox for each recipient.

    Kept in memory if the disk refuses it, or if it cannot be signed: then only this process may
    send it.
    """
    folder: Path | None = None
    wanted = [spec for spec in specs if not spec.get("kinds") or mail.kind in spec["kinds"]]
    single = [one for spec in wanted for one in split_recipients(spec)]
    if box is not None and single:
        with suppress(OSError):  # a full disk must not prevent sending the mail
            folder = box.make_folder(OUTBOX)
    deliveries = []
    for index, spec in enumerate(single):
        path = None if folder is None else folder / f"{mail.id}-{index}.json"
        delivery = Delivery(mail=mail, spec=spec, path=path)
        try:
            delivery.write()
        except (OSError, KeyUnusableError):
            delivery = replace(delivery, path=None)
        deliveries.append(delivery)
    return deliveries


def read_outbox(box: Mailbox) -> list[Delivery]:
    """The unsent mail of this user's runs, oldest first; other files are left out."""
    found = (_read(path) for path in (box.folder / OUTBOX).glob("[!.]*.json"))
    deliveries = (delivery for delivery in found if delivery is not None)
    return sorted(deliveries, key=lambda delivery: (delivery.mail.time, str(delivery.path)))


def _read(path: Path) -> Delivery | None:
    """The delivery that a run of this user put into a file; None for anything else."""
    value = durable.find_object(path)
    if not is_signed(path, value):
        return None
    mail, spec = (value.get(name) for name in ("mail", "notify"))
    parsed = parse_mail(mail) if isinstance(mail, dict) else None
    if parsed is None or not isinstance(spec, dict) or "type" not in spec:
        return None
    error, is_final = str(value.get("error") or ""), value.get("final") is True
    return Delivery(mail=parsed, spec=spec, path=path, error=error, is_final=is_final)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether a file is there and no other process has locked it; never waits.

    Where files cannot be locked, every process gets True.
    """
    with ExitStack() as stack:
        is_mine: bool | None = None
        with suppress(OSError):  # it is gone, or not writable
            flags = os.O_RDWR | NO_FOLLOW
            is_mine = stack.enter_context(durable.locked(path, flags, waits=False))
        yield is_mine is not False and path.exists()


@final
class BackgroundSender:
    """Sends deliveries, each in a daemon thread that retries after pauses."""

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
        """Wait at most ``seconds``, then stop retrying; returns what is unsent, with errors."""
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
