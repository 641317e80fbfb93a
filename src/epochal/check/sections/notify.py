"""Checks the section ``notify``: addresses, logins, and secrets that the config contains."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, urlsplit

from epochal.config.interpolate import ENV_OPENING
from epochal.registry.component_names import BUILTINS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.check.values.checker import ConfigChecker
    from epochal.config.node import Node
    from epochal.errors import Place

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SECRET_HEADER = re.compile(r"auth|token|key|secret|cookie|password", re.IGNORECASE)
# A random text in an address, such as the last parts of webhooks of Slack and Discord.
_TOKEN = re.compile(r"(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{16,}")
_ENV = "write ${env:NAME}, and NAME into the list `env`"


def check_notify(checker: ConfigChecker, root: Node) -> None:
    """Report mistakes in ``notify`` that the types of its values do not show."""
    for index, node in enumerate(root.get("notify").elements):
        key = f"notify.{index}"
        name = node.mapping.get("type")
        if name is None or key not in checker.factories:
            continue
        if name.value not in BUILTINS["channel"]:
            what = f"{name.value!r} cannot send mail"
            hint = f"write {', '.join(BUILTINS['channel'])}, or a hook with run_end"
            checker.report(f"{key}.type", what, name.place, hint)
            continue
        checks = {"smtp": _check_smtp, "webhook": _check_webhook, "apprise": _check_apprise}
        checks[str(name.value)](checker, key, node)
        kinds = node.get("kinds")
        if kinds.is_list and not kinds.elements:
            hint = "leave it out for all kinds"
            checker.report(f"{key}.kinds", "nothing would be sent", kinds.place, hint)


def _check_smtp(checker: ConfigChecker, key: str, node: Node) -> None:
    for path, address in _texts(node, "to"):
        if "@" not in str(address.value) and not checker.has_any(f"{key}.{path}"):
            what = "is not an email address"
            checker.report(f"{key}.{path}", what, address.place, "write name@example.org")
    _require_hidden(checker, f"{key}.password", node.get("password"))
    user, password = node.get("user").value, node.get("password").value
    if (user is None) != (password is None):
        missing = "password" if password is None else "user"
        what = "a login needs a user and a password"
        checker.report(f"{key}.{missing}", what, _place(node), f"add {missing}: ...")
    is_open = node.get("security").value == "none" and node.get("host").value not in _LOOPBACK
    if is_open and password is not None:
        what = "the password would be sent unencrypted"
        place = node.mapping["security"].place
        checker.report(f"{key}.security", what, place, "write starttls or tls")


def _check_webhook(checker: ConfigChecker, key: str, node: Node) -> None:
    url = node.mapping.get("url")
    if url is not None and isinstance(url.value, str) and not checker.has_any(f"{key}.url"):
        parts = _split(url.value)
        if parts is None:
            what = "is not a web address"
            checker.report(f"{key}.url", what, url.place, "write https://...")
        elif parts.username or _has_secret(parts):
            _require_hidden(checker, f"{key}.url", url)
    for name, header in node.get("headers").mapping.items():
        if _SECRET_HEADER.search(name):
            _require_hidden(checker, f"{key}.headers.{name}", header)


def _has_secret(parts: SplitResult) -> bool:
    is_named = any(_SECRET_HEADER.search(name) for name, _ in parse_qsl(parts.query))
    return is_named or any(map(_TOKEN.search, (parts.path, parts.query)))


def _split(url: str) -> SplitResult | None:
    """The parts of a web address; None if it is not one."""
    try:
        parts = urlsplit(url)
        return parts if parts.scheme in ("http", "https") and parts.hostname else None
    except ValueError:
        return None


def _check_apprise(checker: ConfigChecker, key: str, node: Node) -> None:
    for path, url in _texts(node, "urls"):
        _require_hidden(checker, f"{key}.{path}", url)
    if find_spec("apprise") is None:
        what, hint = "the package apprise is not installed", "pip install 'epochal[apprise]'"
        checker.report(f"{key}.type", what, _place(node), hint)


def _require_hidden(checker: ConfigChecker, key: str, node: Node) -> None:
    """Report a secret that is written in the config: the record would keep it."""
    if node.value is None or checker.has_any(key):
        return
    if ENV_OPENING not in (node.template or ""):
        what = "is a secret, and the record of every run would keep it"
        # Without the line of the file, which would show it.
        checker.report(key, what, replace(node.place, text=""), _ENV)


def _texts(node: Node, name: str) -> Iterator[tuple[str, Node]]:
    """Each text of a key that has one text or a list of them, with its path."""
    child = node.get(name)
    if isinstance(child.value, str):
        yield name, child
    for index, element in enumerate(child.elements):
        if isinstance(element.value, str):
            yield f"{name}.{index}", element


def _place(node: Node) -> Place:
    return node.mapping["type"].place
