"""A plain tree as YAML in block style."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from epochal.config import scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.config.node import Plain

_WIDTH = 96
_PLAIN = re.compile(r"(?:[A-Za-z0-9_./+$]|-[A-Za-z0-9_$])(?:[\w./+\-$@% ]*[\w./+\-$@%])?", re.ASCII)
_KEY = re.compile(r"[A-Za-z_$][\w.$-]*", re.ASCII)
# Words and numbers that are plain text here but something else to older YAML readers.
_ELSEWHERE = re.compile(
    r"y|yes|n|no|on|off|true|false|null|[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?|0[bB][01_]+|\.\.\.",
    re.IGNORECASE,
)
_UNPRINTABLE = re.compile(
    r"[^\x20-\x7e\xa1-\u1fff\u2010-\u2027\u202f-\ud7ff\ue000-\ufdcf\ufdf0-\ufefe\uff00-\uffef"
    r"\U00010000-\U0010ffff]"
)
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def write_yaml(tree: Plain) -> str:
    """The text of a plain tree; a mapping's keys keep their order."""
    lines = [_inline(tree)] if _is_inline(tree) else list(_lines(tree))
    return "\n".join(lines) + "\n"


def _lines(tree: Plain) -> Iterator[str]:
    if isinstance(tree, dict):
        for key, child in tree.items():
            yield from _entry(f"{_key(key)}:", child)
        return
    for child in tree:
        if _is_inline(child):
            yield f"- {_inline(child)}"
            continue
        marker = "- "
        for line in _lines(child):
            yield marker + line
            marker = "  "


def _entry(head: str, child: Plain) -> Iterator[str]:
    if _is_inline(child, room=_WIDTH - len(head)):
        yield f"{head} {_inline(child)}"
        return
    yield head
    for line in _lines(child):
        yield f"  {line}"


def _is_inline(tree: Plain, room: int = _WIDTH) -> bool:
    if isinstance(tree, dict):
        return not tree
    if isinstance(tree, list):
        flat = all(not isinstance(child, dict | list) for child in tree)
        return not tree or (flat and len(_inline(tree)) <= room)
    return True


def _inline(tree: Plain) -> str:
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{_key(k)}: {_inline(v)}" for k, v in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(_inline(child) for child in tree) + "]"
    return _scalar(tree)


def _scalar(value: Plain) -> str:
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return repr(value)


def _key(key: str) -> str:
    return key if _KEY.fullmatch(key) and not _ELSEWHERE.fullmatch(key) else _quote(key)


def _text(text: str) -> str:
    if not _PLAIN.fullmatch(text) or _ELSEWHERE.fullmatch(text):
        return _quote(text)
    return text if isinstance(scalar.resolve(text), str) else _quote(text)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{_UNPRINTABLE.sub(_escape, escaped)}"'


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] in _SHORT:
        return _SHORT[match[0]]
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
