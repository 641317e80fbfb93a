"""Escapes text for terminals, file names and encodings."""

from __future__ import annotations

import json
import os
import re
import sys

_COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that a terminal interprets: control characters and changes of text direction."""


def decode_typed(text: str) -> str:
    """Words of the command line decoded as UTF-8, even if Python decoded them as ASCII."""
    try:
        text.encode()
    except UnicodeEncodeError:  # undecoded bytes are surrogates
        return os.fsencode(text).decode("utf-8", "replace")
    return text


def to_file_name(text: str) -> str:
    """``text`` as part of a path; characters that the file system cannot encode become ``-``."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        return text.encode(encoding, "replace").decode(encoding).replace("?", "-")
    return text


def to_openable_path(path: str) -> str:
    """A recorded path in a form that this process can open."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return os.fsdecode(path.encode())
    return path


def replace_unencodable(text: str, encoding: str | None) -> str:
    """``text`` without characters that ``encoding`` lacks; they become ``?``."""
    name = encoding or "utf-8"
    return text.encode(name, "replace").decode(name)


def escape_control(text: str) -> str:
    """``text`` with terminal control characters escaped as in Python; newlines and tabs stay."""
    if text.isascii() and text.isprintable():  # the usual case, which must be fast
        return text
    return _COMMANDS.sub(_escape, text.replace("\r\n", "\n"))


def escape_control_json(text: str) -> str:
    """JSON with terminal control characters escaped; it stays equivalent JSON."""
    return _COMMANDS.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
