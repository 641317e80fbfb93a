"""Text between terminals, files and folders: what they can hold, and what they must not obey."""

from __future__ import annotations

import json
import os
import re
import sys

_COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""What a terminal obeys instead of showing it: controls, and signs that turn the writing round."""


def decode_typed(text: str) -> str:
    """What was typed, as the UTF-8 that it nearly always is, even if Python took it for ASCII."""
    try:
        text.encode()
    except UnicodeEncodeError:  # undecoded bytes stand in it as surrogates
        return os.fsencode(text).decode("utf-8", "replace")
    return text


def to_file_name(text: str) -> str:
    """``text`` as a part of a path that can be made here: what has no code becomes ``-``."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        return text.encode(encoding, "replace").decode(encoding).replace("?", "-")
    return text


def to_openable_path(path: str) -> str:
    """A recorded path as this process can open it."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return os.fsdecode(path.encode())
    return path


def replace_unencodable(text: str, encoding: str | None) -> str:
    """``text`` as a terminal of this encoding can show it."""
    name = encoding or "utf-8"
    return text.encode(name, "replace").decode(name)


def escape_control(text: str) -> str:
    """``text`` with nothing in it that a terminal obeys; lines and tabs stay.

    Colours, moves, links, bells and turned writing are shown as Python would write them.
    """
    if text.isascii() and text.isprintable():  # most are, and tables have many
        return text
    return _COMMANDS.sub(_escape, text.replace("\r\n", "\n"))


def escape_control_json(text: str) -> str:
    """The same for JSON, which stays the same JSON: such a sign can only stand in a text."""
    return _COMMANDS.sub(lambda sign: json.dumps(sign[0])[1:-1], text)


def _escape(sign: re.Match[str]) -> str:
    return sign[0].encode("unicode_escape").decode()
