"""Text between terminals, files and folders where Python was told of no encoding but ASCII."""

from __future__ import annotations

import os
import sys


def readable(text: str) -> str:
    """What was typed, as the UTF-8 that it nearly always is, even if Python took it for ASCII."""
    try:
        text.encode()
    except UnicodeEncodeError:  # undecoded bytes stand in it as surrogates
        return os.fsencode(text).decode("utf-8", "replace")
    return text


def on_disk(text: str) -> str:
    """``text`` as a part of a path that can be made here: what has no code becomes ``-``."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        encoding = sys.getfilesystemencoding()
        return text.encode(encoding, "replace").decode(encoding).replace("?", "-")
    return text


def reachable(path: str) -> str:
    """A recorded path as this process can open it."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return os.fsdecode(path.encode())
    return path


def showable(text: str, encoding: str | None) -> str:
    """``text`` as a terminal of this encoding can show it."""
    name = encoding or "utf-8"
    return text.encode(name, "replace").decode(name)
