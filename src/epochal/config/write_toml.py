"""A plain tree as TOML with tables and arrays of tables."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.config.node import Plain

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_WIDTH = 96


def write_toml(tree: dict[str, Plain]) -> str:
    """The text of a plain mapping; scalars of a table come before its own tables."""
    text = "\n".join(_table(tree, ()))
    return f"{text.strip()}\n"


def _table(table: dict[str, Plain], path: tuple[str, ...]) -> Iterator[str]:
    for key, value in table.items():
        if not isinstance(value, dict) and not _is_table_list(value):
            yield f"{_key(key)} = {_value(value, len(key) + 3)}"
    for key, value in table.items():
        below = (*path, key)
        name = ".".join(map(_key, below))
        if isinstance(value, dict):
            if not value or not all(isinstance(child, dict) for child in value.values()):
                yield from ("", f"[{name}]")
            yield from _table(value, below)
        elif _is_table_list(value):
            for element in value:
                yield from ("", f"[[{name}]]")
                yield from _table(element, below)


def _is_table_list(value: Plain) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _value(value: Plain, indent: int = 0) -> str:
    if isinstance(value, dict):
        entries = ", ".join(f"{_key(key)} = {_value(child)}" for key, child in value.items())
        return f"{{{entries}}}"
    if isinstance(value, list):
        elements = [_value(child) for child in value]
        flat = ", ".join(elements)
        if not indent or len(flat) + indent <= _WIDTH:
            return f"[{flat}]"
        return "\n".join(["[", *(f"  {element}," for element in elements), "]"])
    return _scalar(value)


def _scalar(value: Plain) -> str:
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _quote(key)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_CONTROL.sub(_escape, escaped)}"'


def _escape(match: re.Match[str]) -> str:
    return _SHORT.get(match[0], f"\\u{ord(match[0]):04x}")
