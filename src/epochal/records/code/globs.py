"""Patterns as ``.gitignore`` has them, matched without ever trying all ways to split a name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ANY = "**"
_Part: TypeAlias = "re.Pattern[str] | None"
"""What fits one name of a path; None for any number of names."""


@final
class Glob:
    """A pattern for paths.

    ``*``, ``?`` and ``[...]`` stand for what is inside of a name, ``**`` for any number of names.

    Args:
        text: The pattern.
        is_anchored: Whether it stands for the whole path, and not for any end of it.
    """

    def __init__(self, text: str, *, is_anchored: bool) -> None:
        names = text.split("/") if is_anchored else [_ANY, *text.split("/")]
        if names[-1] == _ANY:  # something must be inside
            names.append("*")
        self._parts: list[_Part] = [None if name == _ANY else _compile(name) for name in names]

    def fits(self, names: Sequence[str]) -> bool:
        """Whether it stands for the path of these names."""
        if len(self._parts) == 2 and self._parts[0] is None:
            last = self._parts[1]
            return last is None or last.fullmatch(names[-1]) is not None
        return _fits(self._parts, names)


def _fits(parts: Sequence[_Part], names: Sequence[str]) -> bool:
    part, place = 0, 0
    back: tuple[int, int] | None = None  # only the last ``**`` may have to take one more name
    while place < len(names):
        expected = parts[part] if part < len(parts) else None
        if part < len(parts) and expected is None:
            back = part, place
            part += 1
        elif expected is not None and expected.fullmatch(names[place]):
            part, place = part + 1, place + 1
        elif back is not None:
            back = back[0], back[1] + 1
            part, place = back[0] + 1, back[1]
        else:
            return False
    return all(rest is None for rest in parts[part:])


def _compile(name: str) -> re.Pattern[str]:
    try:
        return re.compile(_to_regex(list(_pieces(name))), re.DOTALL)
    except re.error:  # such as [z-a]: then it stands for itself
        return re.compile(re.escape(name))


def _to_regex(pieces: list[str]) -> str:
    """One expression of what stands between the stars, each found at the first place possible.

    No later place can be better, so none is tried: ``(?>...)`` never goes back.
    """
    if len(pieces) == 1:
        return pieces[0]
    first, *middle, last = pieces
    return first + "".join(f"(?>.*?{piece})" for piece in middle if piece) + f".*{last}"


def _pieces(name: str) -> Iterator[str]:
    """Expressions of one length each, which stars stand between."""
    piece, place = "", 0
    while place < len(name):
        char = name[place]
        first = place + 2 + (name[place + 1 : place + 2] in ("!", "^"))
        closing = name.find("]", first) if char == "[" else -1
        place += 1
        if char == "*":
            yield piece
            piece = ""
        elif closing > 0:
            piece += _to_class(name[place:closing])
            place = closing + 1
        elif char == "\\" and place < len(name):
            piece += re.escape(name[place])
            place += 1
        else:
            piece += "." if char == "?" else re.escape(char)
    yield piece


def _to_class(inner: str) -> str:
    sign = "^" if inner[0] in "!^" else ""
    chars = inner[1:] if sign else inner
    # A hyphen stands for a range, unless it begins one or ends one itself.
    escaped = (
        char if char == "-" and place and chars[place - 1] != "-" else re.escape(char)
        for place, char in enumerate(chars)
    )
    return f"[{sign}{''.join(escaped)}]"
