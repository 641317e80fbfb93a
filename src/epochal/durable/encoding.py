"""Values as JSON, and as JSON lines with a checksum, and back."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

_NOT_FINITE = {"$nan": math.nan, "$inf": math.inf, "-$inf": -math.inf}
_CRC_KEY = b',"crc":'


def encode_line(value: Mapping[str, object]) -> bytes:
    """One line of JSON whose last entry, ``crc``, is the CRC-32 of the text without it."""
    text = encode_json(value)
    return b"%s%s%d}\n" % (text[:-1], _CRC_KEY, zlib.crc32(text))


def decode_line(line: bytes) -> dict[str, Any] | None:
    """What ``encode_line`` was given, or None when the line is damaged."""
    text, found, crc = line.rstrip(b"\n").rpartition(_CRC_KEY)
    try:
        value = decode_json(text + b"}" if found else line)
        is_whole = not found or int(crc.rstrip(b"}")) == zlib.crc32(text + b"}")
    except (ValueError, RecursionError):
        return None
    return value if is_whole and isinstance(value, dict) else None


def encode_json(value: object, *, indent: int | None = None) -> bytes:
    """Valid JSON for almost anything.

    Infinities and NaN become ``"$inf"``, ``"-$inf"`` and ``"$nan"``, as in configs; paths and
    other objects become their ``str``; arrays become lists; dataclasses become mappings.
    """
    plain = to_plain(value)
    separators = (",", ":") if indent is None else None
    dump = functools.partial(json.dumps, plain, indent=indent, separators=separators)
    try:
        return dump(ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # lone surrogates exist in JSON as escapes only
        return dump(allow_nan=False).encode()


def decode_json(data: bytes) -> object:
    """The value of a JSON text, with ``"$nan"`` and ``"$inf"`` as floats; may raise ValueError."""
    value = json.loads(data)
    return _restore_floats(value) if b'$inf"' in data or b'"$nan"' in data else value


def _restore_floats(value: object) -> object:
    if isinstance(value, dict):
        return {key: _restore_floats(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_restore_floats(child) for child in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def to_plain(value: object) -> object:
    """What ``encode_json`` writes for ``value``: mappings, lists, texts, numbers."""
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "$nan" if math.isnan(value) else "$inf" if value > 0 else "-$inf"
    if isinstance(value, Mapping):
        return {str(key): to_plain(child) for key, child in value.items()}
    return _plain_object(value)


def _plain_object(value: object) -> object:
    if isinstance(value, list | tuple):
        return [to_plain(child) for child in value]
    if isinstance(value, set | frozenset):
        return [to_plain(child) for child in sorted(value, key=str)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    to_list = getattr(value, "tolist", None)  # arrays and tensors, without importing either
    return to_plain(to_list()) if callable(to_list) else str(value)
