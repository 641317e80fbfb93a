"""Scalars: numbers, null, and the ``$`` words that every format understands.

``"$null"``, ``"$inf"``, ``"-$inf"`` and ``"$nan"`` mean the same in YAML, TOML and JSON;
``"$delete"`` removes an inherited key. One more ``$`` in front makes any of them, and ``${``,
ordinary text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epochal.config.node import Scalar

DELETE = "$delete"
TOO_BIG = "integer does not fit in 64 bits"
REDACTED = "<redacted>"
"""Replaces a secret in records; a config that contains it cannot run."""

_SPELLED: dict[str, Scalar] = {
    "$null": None,
    "$inf": math.inf,
    "-$inf": -math.inf,
    "$nan": math.nan,
}
_WORD = re.compile(r"\$+(?:null|inf|nan|delete)|-\$+inf")
OPENING = re.compile(r"(?<!\$)(\$+)\{")  # the lookbehind avoids quadratic time on many dollars
"""The start of a reference; the dollars before the last one escape it."""

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?[0-9]+")
_RADIX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SHOWN = {"None": "null", "True": "true", "False": "false"}
_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w.$-]*")
_INF = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")
_NAN = re.compile(r"\.(?:nan|NaN|NAN)")
_INT_DIGITS = 400
"""Longer integers are out of range and slow to convert."""


def resolve(text: str) -> Scalar:
    """The value of an unquoted word in YAML 1.2; ValueError if a number cannot be kept exactly."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text) or _RADIX.fullmatch(text):
        return parse_int(text)
    if _FLOAT.fullmatch(text):
        return parse_float(text)
    if infinite := _INF.fullmatch(text):
        return -math.inf if infinite[1] == "-" else math.inf
    return math.nan if _NAN.fullmatch(text) else text


def parse_int(text: str) -> int:
    """The integer that ``text`` spells; ValueError when it does not fit in 64 bits."""
    base = 0 if text.startswith(("0o", "0x")) else 10
    if len(text) > _INT_DIGITS or not is_64_bit(int(text, base)):
        raise ValueError(TOO_BIG)
    return int(text, base)


def is_64_bit(value: int) -> bool:
    """Whether an integer fits in 64 bits, signed or not."""
    return -(2**63) <= value < 2**64


def parse_float(text: str) -> float:
    """The float that ``text`` spells; ValueError when it is beyond the largest float."""
    value = float(text)
    if math.isinf(value):
        raise ValueError("number is too big for a float")
    return value


def show(value: object) -> str:
    """A value as a message shows it: like a config, on one line, with texts in quotes."""
    if isinstance(value, Mapping):
        pairs = (f"{_show_key(key)}: {show(child)}" for key, child in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(show, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{'-' if value < 0 else ''}.{'nan' if math.isnan(value) else 'inf'}"
    return _SHOWN.get(repr(value), repr(value))


def _show_key(key: object) -> str:
    text = str(key)
    return text if _PLAIN_KEY.fullmatch(text) else repr(text)


def shorten(text: str, width: int = 40) -> str:
    """The text, cut to ``width`` characters for a message."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def has_surrogates(text: str) -> bool:
    """Whether a text contains lone surrogates, which cannot be encoded."""
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def decode(text: str, unescaped: str) -> Scalar:
    """The value of a text without references; ``unescaped`` has ``${`` for its ``$${``."""
    if text in _SPELLED:
        return _SPELLED[text]
    return text.replace("$", "", 1) if _WORD.fullmatch(text) else unescaped


def escape(text: str) -> str:
    """How a text is written so that reading gives it back unchanged."""
    if _WORD.fullmatch(text):
        return text.replace("$", "$$", 1)
    return OPENING.sub(r"$\g<0>", text) if "${" in text else text
