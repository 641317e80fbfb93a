"""The interface of channels that send mail, and the entries of ``notify`` that configure them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from epochal.config import dump, load
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from epochal.config import Node
    from epochal.records.mail.mailbox import Mail

Spec = Mapping[str, Any]
"""An entry of ``notify`` as plain data."""

_OWN_KEYS = ("type", "kinds")
_RECIPIENTS = ("to", "urls")
_HIDDEN = "***"
_SHORTEST_SECRET = 4


class SendError(Exception):
    """A mail could not be sent.

    Args:
        what: The reason, as shown to users.
        is_final: Whether another attempt is pointless.
    """

    def __init__(self, what: str, *, is_final: bool = False) -> None:
        super().__init__(what)
        self.is_final = is_final


class Channel(Protocol):
    """Sends mails to one kind of service."""

    def send(self, mail: Mail, *, seconds: float) -> None:
        """Send one mail; each response of the server may take ``seconds``.

        Raises:
            SendError: It was not sent; any other exception counts as temporary.
        """


def read_specs(expanded: Node) -> list[dict[str, Any]]:
    """The entries of ``notify`` in a checked config, with ``${env:NAME}`` unresolved."""
    node = expanded.mapping.get("notify")
    specs: list[dict[str, Any]] = [] if node is None else json.loads(dump(node, "json"))
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
        raise SendError(f"there is no way to send called {spec['type']!r}", is_final=True)
    return channel(**{key: value for key, value in spec.items() if key not in _OWN_KEYS})


def split_recipients(public: Spec) -> list[dict[str, Any]]:
    """One entry per recipient, so that a retry reaches only those who lack the mail."""
    for key in _RECIPIENTS:
        several = public.get(key)
        if isinstance(several, list | tuple):
            return [{**public, key: one} for one in several]
    return [dict(public)]


def resolve_environment(public: Spec) -> dict[str, Any]:
    """An entry with each ``${env:NAME}`` replaced by its value in this process.

    Raises:
        SendError: A variable is not set.
    """
    names = sorted({name for text in _leaves(public) for name in _names_in(text)})
    try:
        config = load({"env": names, "notify": [dict(public)]})
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


def _names_in(text: str) -> Iterator[str]:
    """The environment variables that a text refers to."""
    for part in text.split("${env:")[1:]:
        name, closed, _ = part.partition("}")
        if closed:
            yield name.strip()
