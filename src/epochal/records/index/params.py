"""The config of a run as rows of the index: one per leaf and one per list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from epochal import durable
from epochal.records.folder.provenance import get_newest_origins
from epochal.records.index.sql_schema import MAX_INTEGER, MIN_INTEGER
from epochal.records.layout.coerce import as_float, iter_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Param(NamedTuple):
    """One value of a config."""

    key: str
    text: str | None
    """As it reads: ``0.001``, ``true``, ``[1,2]``; None for null."""

    number: float | None
    """None for other types; a boolean is 1 or 0. An integer beyond 64 bits is rounded."""

    is_default: bool
    """Whether no config and no override set it."""


def read_params(provenance: Mapping[str, Any]) -> list[Param]:
    """Every value in ``provenance.json``, and the lists that contain them."""
    found: dict[str, Param] = {}
    leaves: dict[str, tuple[Any, bool]] = {}
    for key, origin in get_newest_origins(provenance).items():
        value, is_default = origin.get("value"), origin.get("layer") == "default"
        leaves[key] = value, is_default
        found[key] = _param(key, value, is_default=is_default)
    for key, value, is_default in _lists(leaves):
        found.setdefault(key, _param(key, value, is_default=is_default))
    return list(found.values())


def params_from_values(values: Mapping[str, Any]) -> list[Param]:
    """The same for plain values whose origin is lost."""
    provenance = {key: [{"value": value}] for key, value in iter_leaves(values)}
    return read_params(provenance)


def _param(key: str, value: object, *, is_default: bool) -> Param:
    if value is None:
        return Param(key, None, None, is_default)
    if isinstance(value, bool):
        return Param(key, "true" if value else "false", int(value), is_default)
    if isinstance(value, int | float):
        return Param(key, repr(value), _number(value), is_default)
    if isinstance(value, str):
        return Param(key, value, None, is_default)
    return Param(key, durable.encode_json(value).decode(), None, is_default)


def _number(value: float) -> float | None:
    is_kept = isinstance(value, int) and MIN_INTEGER <= value <= MAX_INTEGER
    return value if is_kept else as_float(value)


def _lists(leaves: Mapping[str, tuple[Any, bool]]) -> Iterator[tuple[str, object, bool]]:
    """Each list, rebuilt from its elements."""
    owners: dict[str, list[str]] = {}
    for key in leaves:
        words = key.split(".")
        for i, word in enumerate(words[1:], start=1):
            if word == "0":
                owners.setdefault(".".join(words[:i]), [])
    if not owners:
        return
    for key in leaves:
        words = key.split(".")
        for i in range(1, len(words)):
            if (owner := ".".join(words[:i])) in owners:
                owners[owner].append(key)
    for owner, keys in owners.items():
        tree: dict[str, Any] = {}
        for key in keys:
            _set_nested(tree, key[len(owner) + 1 :].split("."), leaves[key][0])
        yield owner, _as_lists(tree), all(leaves[key][1] for key in keys)


def _set_nested(tree: dict[str, Any], words: list[str], value: object) -> None:
    for word in words[:-1]:
        below = tree.setdefault(word, {})
        if not isinstance(below, dict):  # a damaged file may name a leaf and a key below it
            return
        tree = below
    tree[words[-1]] = value


def _as_lists(value: object) -> object:
    """Turn mappings with the keys 0, 1, 2, ... back into lists."""
    if not isinstance(value, dict) or not value:
        return value
    if list(value) == [str(i) for i in range(len(value))]:
        return [_as_lists(child) for child in value.values()]
    return {key: _as_lists(child) for key, child in value.items()}
