"""Ids by which a browser asks for files, so that no request has a path."""

from __future__ import annotations

import hashlib

_ID_DIGITS = 16


def make_file_id(*words: object) -> str:
    """The id by which a browser asks for a file; it is looked up, never used as a path."""
    text = "\0".join(map(str, words))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:_ID_DIGITS]
