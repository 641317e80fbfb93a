"""Writing a config as YAML, TOML or JSON, such that reading gives the same values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping

from epochal.config import scalar
from epochal.config.interpolate import ENV_OPENING
from epochal.config.node import TASK_OPENING, Node, Plain, Scalar

FORMATS = ("yaml", "toml", "json")
_WIDTH = 96
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", '"': '\\"'}

_YAML_TEXT = re.compile(
    r"(?:[A-Za-z0-9_./+$]|-[A-Za-z0-9_$])(?:[\w./+\-$@% ]*[\w./+\-$@%])?", re.ASCII
)
_YAML_KEY = re.compile(r"[A-Za-z_$][\w.$-]*", re.ASCII)
# Words and numbers that are plain text here but something else to older YAML readers.
_YAML_1_1 = re.compile(
    r"y|yes|n|no|on|off|true|false|null|[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?|0[bB][01_]+|\.\.\.",
    re.IGNORECASE,
)
_YAML_ESCAPED = re.compile(
    r"[\\\"]|[^\x20-\x7e\xa1-\u1fff\u2010-\u2027\u202f-\ud7ff\ue000-\ufdcf\ufdf0-\ufefe"
    r"\uff00-\uffef\U00010000-\U0010ffff]"
)
_TOML_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TOML_ESCAPED = re.compile(r"[\\\"\x00-\x1f\x7f]")


def dump(tree: Node | Plain, format: str = "yaml") -> str:
    """The text of a config in the given format.

    Values from the environment or the task are written as the ``${env:NAME}`` they came from.
    """
    plain = _spell(tree, format)
    if format == "json":
        return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if format == "toml":
        return "\n".join(_toml_table(plain, ())).strip() + "\n"
    if format == "yaml":
        lines = [_yaml_inline(plain)] if _is_inline(plain) else _yaml_lines(plain)
        return "\n".join(lines) + "\n"
    raise ValueError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")


def _spell(tree: Node | Plain, format: str) -> Plain:
    """The plain tree with ``$`` words for values that the format lacks."""
    if isinstance(tree, Node):
        template = tree.template or ""
        if ENV_OPENING in template or template.startswith(TASK_OPENING):
            return template
        tree = tree.value
    if isinstance(tree, Mapping):
        return {str(key): _spell(child, format) for key, child in tree.items()}
    if isinstance(tree, list | tuple):
        return [_spell(child, format) for child in tree]
    return scalar.escape(tree) if isinstance(tree, str) else _spell_scalar(tree, format)


def _spell_scalar(value: Scalar, format: str) -> Scalar:
    if value is None and format == "toml":
        return "$null"
    if format == "json" and isinstance(value, float) and not math.isfinite(value):
        return _not_finite(value, "$")
    return value


def _not_finite(value: float, prefix: str) -> str:
    return f"{'-' if value < 0 else ''}{prefix}{'nan' if math.isnan(value) else 'inf'}"


def _number(value: Scalar, prefix: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return _not_finite(value, prefix)
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _quote(text: str, escaped: re.Pattern[str]) -> str:
    return f'"{escaped.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0], f"\\u{ord(match[0]):04x}")


def _yaml_lines(tree: Plain) -> Iterator[str]:
    if isinstance(tree, dict):
        for key, child in tree.items():
            yield from _yaml_entry(f"{_yaml_key(key)}:", child)
        return
    for child in tree:
        if _is_inline(child):
            yield f"- {_yaml_inline(child)}"
            continue
        marker = "- "
        for line in _yaml_lines(child):
            yield marker + line
            marker = "  "


def _yaml_entry(head: str, child: Plain) -> Iterator[str]:
    if _is_inline(child, room=_WIDTH - len(head)):
        yield f"{head} {_yaml_inline(child)}"
        return
    yield head
    for line in _yaml_lines(child):
        yield f"  {line}"


def _is_inline(tree: Plain, room: int = _WIDTH) -> bool:
    if isinstance(tree, list) and tree:
        is_flat = all(not isinstance(child, dict | list) for child in tree)
        return is_flat and len(_yaml_inline(tree)) <= room
    return not isinstance(tree, dict) or not tree


def _yaml_inline(tree: Plain) -> str:
    """A scalar, an empty mapping or a list of scalars."""
    if isinstance(tree, dict):
        return "{}"
    if isinstance(tree, list):
        return f"[{', '.join(map(_yaml_inline, tree))}]"
    if isinstance(tree, str):
        return _yaml_text(tree)
    return "null" if tree is None else _number(tree, ".")


def _yaml_key(key: str) -> str:
    is_plain = _YAML_KEY.fullmatch(key) and not _YAML_1_1.fullmatch(key)
    return key if is_plain else _quote(key, _YAML_ESCAPED)


def _yaml_text(text: str) -> str:
    is_plain = _YAML_TEXT.fullmatch(text) and not _YAML_1_1.fullmatch(text)
    if is_plain and isinstance(scalar.resolve(text), str):
        return text
    return _quote(text, _YAML_ESCAPED)


def _toml_table(table: dict[str, Plain], path: tuple[str, ...]) -> Iterator[str]:
    """The lines of a table: its scalars, then its own tables."""
    for key, value in table.items():
        if not isinstance(value, dict) and not _is_table_list(value):
            yield f"{_toml_key(key)} = {_toml_value(value, len(key) + 3)}"
    for key, value in table.items():
        below = (*path, key)
        name = ".".join(map(_toml_key, below))
        if isinstance(value, dict):
            if not value or not all(isinstance(child, dict) for child in value.values()):
                yield from ("", f"[{name}]")
            yield from _toml_table(value, below)
        elif _is_table_list(value):
            for element in value:
                yield from ("", f"[[{name}]]")
                yield from _toml_table(element, below)


def _is_table_list(value: Plain) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _toml_value(value: Plain, indent: int = 0) -> str:
    if isinstance(value, dict):
        entries = (f"{_toml_key(key)} = {_toml_value(child)}" for key, child in value.items())
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list):
        elements = [_toml_value(child) for child in value]
        flat = ", ".join(elements)
        if not indent or len(flat) + indent <= _WIDTH:
            return f"[{flat}]"
        return "\n".join(["[", *(f"  {element}," for element in elements), "]"])
    return _quote(value, _TOML_ESCAPED) if isinstance(value, str) else _number(value, "")


def _toml_key(key: str) -> str:
    return key if _TOML_KEY.fullmatch(key) else _quote(key, _TOML_ESCAPED)
