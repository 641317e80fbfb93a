"""Redacts secrets in JSON trees and configs, and recognises secret files by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from epochal.config.interpolate import ENV_OPENING
from epochal.config.scalar import REDACTED
from epochal.durable.encoding import to_plain
from epochal.records.secrets.process_secrets import hiding_secrets
from epochal.records.secrets.secret_names import is_login_name, is_secret_name, is_token_name
from epochal.records.secrets.text_redaction import is_placeholder, make_redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import PurePath

    from epochal.config.node import Node


_RedactText: TypeAlias = "Callable[[str], str]"

_WORD = re.compile(r"[A-Za-z_]+")


def redact_tree(value: object) -> Any:  # noqa: ANN401 - as open as JSON
    """``value`` as plain data without secrets."""
    return _redact(to_plain(value), "", make_redactor())


def _redact(value: object, name: str, clean: _RedactText) -> object:
    if isinstance(value, Mapping):
        return {
            clean(key): _redact(child, _child_name(name, key, value), clean)
            for key, child in value.items()
        }
    if isinstance(value, list):
        return _redact_list(value, name, clean)
    return _redact_leaf(value, name, clean)


def _redact_leaf(value: Any, name: str, clean: _RedactText) -> Any:  # noqa: ANN401 - a scalar as it is
    if _is_secret(value, name):
        return REDACTED
    return clean(value) if isinstance(value, str) else value


def _redact_list(values: list[Any], name: str, clean: _RedactText) -> list[object]:
    """The elements of a list, where an element may be the value of the option before it."""
    names = _names_of(values, name)
    return [_redact(one, own, clean) for one, own in zip(values, names, strict=True)]


def _names_of(values: Iterable[object], name: str) -> list[str]:
    """The name of each element: the option before it, or the name of the list."""
    names, option = [], ""
    for one in values:
        names.append(option or name)
        word = one if isinstance(one, str) and one.startswith("-") and "=" not in one else ""
        option = word.lstrip("-") if is_secret_name(word.lstrip("-")) else ""
    return names


def _child_name(name: str, key: str, siblings: Iterable[str]) -> str:
    """The name of a child, with the parent's name if everything in the parent is secret.

    ``pass`` also gets its context: it is a password below a connection or beside a user.
    """
    if key.lower() == "pass":
        return f"login.{key}" if any(map(is_login_name, siblings)) else f"{name}.{key}"
    is_holder = is_secret_name(name) and not is_token_name(name)
    return f"{name}.{key}" if is_holder else key


def _is_secret(value: object, name: str) -> bool:
    if value is None or isinstance(value, bool | float) or not is_secret_name(name):
        return False
    if isinstance(value, str):
        return not is_placeholder(value)
    return not is_token_name(name)


def iter_tree_secrets(value: object) -> Iterator[str]:
    """Every text of a tree that has a secret name."""
    yield from _secret_texts(to_plain(value), "")


def _secret_texts(value: object, name: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from _secret_texts(child, _child_name(name, key, value))
    elif isinstance(value, list):
        for one, own in zip(value, _names_of(value, name), strict=True):
            yield from _secret_texts(one, own)
    elif _is_secret(value, name):
        yield str(value)


def redact_config(root: Node) -> Node:
    """A config without secrets; references to the environment stay."""
    with hiding_secrets(iter_config_secrets(root)):
        return _redact_node(root, "", make_redactor())


def _redact_node(node: Node, name: str, clean: _RedactText) -> Node:
    if node.is_mapping:
        entries = {
            _redact_key(key, clean): _redact_node(
                child, _child_name(name, key, node.mapping), clean
            )
            for key, child in node.mapping.items()
        }
        return replace(node, value=MappingProxyType(entries))
    if node.is_list:
        names = _names_of((one.value for one in node.elements), name)
        pairs = zip(node.elements, names, strict=True)
        return replace(node, value=tuple(_redact_node(one, own, clean) for one, own in pairs))
    if node.template is not None and _is_reference(node):
        return replace(node, template=clean(node.template))
    value = _redact_leaf(node.value, name, clean)
    return node if value == node.value else replace(node, value=value, template=None)


def _redact_key(key: str, clean: _RedactText) -> str:
    # A key such as `epochs` stays, even if a user chose it as a password.
    return key if _WORD.fullmatch(key) else clean(key)


def _is_reference(node: Node) -> bool:
    return node.template is not None and ENV_OPENING in node.template


def iter_config_secrets(root: Node) -> Iterator[str]:
    """Every secret text of a config, including overridden values."""
    yield from _secret_values(root, "")


def _secret_values(node: Node, name: str) -> Iterator[str]:
    if node.replaced is not None:
        yield from _secret_values(node.replaced, name)
    if node.is_mapping:
        for key, child in node.mapping.items():
            yield from _secret_values(child, _child_name(name, key, node.mapping))
    elif node.is_list:
        names = _names_of((one.value for one in node.elements), name)
        for one, own in zip(node.elements, names, strict=True):
            yield from _secret_values(one, own)
    elif _is_secret(node.value, name) or _is_hidden(node):
        yield str(node.value)


def _is_hidden(node: Node) -> bool:
    """Whether a value came from the environment and is neither a word nor a path."""
    if not _is_reference(node) or not isinstance(node.value, str):
        return False
    has_letter = any(char.isalpha() for char in node.value)
    has_other = any(not char.isalpha() for char in node.value)
    return len(node.value) >= 8 and has_letter and has_other and not _is_path(node.value)


def _is_path(value: str) -> bool:
    return "://" in value or value.startswith(("/", "./", "../", "~")) or "/" in value[:-1]


_NAMES = re.compile(
    r"\.env(?!\.(?:example|sample|template|dist|defaults?)\b)(?:\..+)?|[\w-]+\.env|\.envrc"
    r"|.+\.(?:pem|key|p12|pfx|jks|keystore|ppk|kdbx|p8|ovpn|tfstate)"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?(?:\.(?!pub$).+)?"
    r"|[._]netrc|\.pgpass|\.my\.cnf|\.pypirc|\.npmrc|\.git-credentials|\.htpasswd|\.dockercfg"
    r"|\.vault-token|\.s3cfg|\.boto|kubeconfig|credentials|kaggle\.json"
    r"|(?:[\w.-]*[._-])?(?:secrets?|credentials?|passwords?|client_secret[\w.-]*|"
    r"service[_-]account[\w.-]*)\.(?:ya?ml|json|toml|ini|cfg|txt|csv)"
    r"|token(?:\.(?:txt|json|pickle))?",
    re.IGNORECASE,
)
_FOLDERS = frozenset((".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure"))


def is_secret_file(path: PurePath | str) -> bool:
    """Whether the name of a file means secrets, such as ``.env`` and ``id_rsa``."""
    *folders, name = (path if isinstance(path, str) else path.as_posix()).split("/")
    is_inside = any(folder.lower() in _FOLDERS for folder in folders)
    return is_inside or _NAMES.fullmatch(name) is not None
