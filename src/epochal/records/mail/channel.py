"""The ways by which mail leaves the machine, and what may go wrong there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from epochal.config import dump, load
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from epochal.config import Node
    from epochal.records.mail.letter import Mail

Spec = Mapping[str, Any]
"""An entry of ``notify`` as plain data."""

_OWN_KEYS = ("type", "kinds")
_RECIPIENTS = ("to", "urls")
_HIDDEN = "***"
_SHORTEST_SECRET = 4


class SendError(Exception):
    """A mail could not be sent.

    Args:
        what: Why, in words for people.
        is_final: Whether another try would not change it.
    """

    def __init__(self, what: str, *, is_final: bool = False) -> None:
        super().__init__(what)
        self.is_final = is_final


class Channel(Protocol):
    """Sends mails to people somewhere else."""

    def send(self, mail: Mail, *, seconds: float) -> None:
        """Send one mail; no single wait for the other side takes longer than ``seconds``.

        Raises:
            SendError: It was refused; anything else that is raised may be tried again.
        """


def read_specs(expanded: Node) -> list[dict[str, Any]]:
    """The entries of ``notify`` in a checked config, with ``${env:NAME}`` as it was written."""
    node = expanded.mapping.get("notify")
    specs: list[dict[str, Any]] = [] if node is None else json.loads(dump(node, "json"))
    return specs


def build_channel(spec: Spec) -> Channel:
    """The channel that a checked entry of ``notify`` describes."""
    options = {key: value for key, value in spec.items() if key not in _OWN_KEYS}
    match spec["type"]:
        case "smtp":
            from epochal.records.mail.smtp import Smtp

            return Smtp(**options)
        case "webhook":
            from epochal.records.mail.webhook import Webhook

            return Webhook(**options)
        case "apprise":
            from epochal.records.mail.apprise import Apprise

            return Apprise(**options)
    raise SendError(f"there is no way to send called {spec['type']!r}", is_final=True)


def split(public: Spec) -> list[dict[str, Any]]:
    """An entry as one for each of those who get the mail, so that none gets it twice."""
    for key in _RECIPIENTS:
        several = public.get(key)
        if isinstance(several, list | tuple):
            return [{**public, key: one} for one in several]
    return [dict(public)]


def fill_in(public: Spec) -> dict[str, Any]:
    """An entry as it is kept, with what its ``${env:NAME}`` stand for in this process.

    Raises:
        SendError: One of them is not set here.
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
    filled: dict[str, Any] = node.to_plain()
    return filled


def hide(text: str, public: Spec, filled: Spec) -> str:
    """``text`` without anything that came from the environment."""
    kept = set(_leaves(public))
    secrets = {leaf for leaf in _leaves(filled) if leaf not in kept}
    # Parts too: of a text around a secret only the secret itself may come back.
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
    """The names of the environment that a text refers to."""
    for part in text.split("${env:")[1:]:
        name, closed, _ = part.partition("}")
        if closed:
            yield name.strip()
