"""Going through the tokens of a query, one after the other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, final

from epochal.records.query.tokens import split
from epochal.records.query.values import ACCEPTED_TIMES, read_length, read_number, read_period

if TYPE_CHECKING:
    from epochal.errors import ConfigError
    from epochal.records.query.tokens import Token, Written

SIGNS = {"=": "=", "==": "=", "!=": "!=", "~": "~", "!~": "!~"} | {
    sign: sign for sign in ("<", "<=", ">", ">=")
}
"""How two things are compared, by what may be typed for it."""

_MEANT = {
    "&": "and", "&&": "and", "|": "or", "||": "or", "!": "not", "<>": "!=", "===": "=", "!==": "!=",
    "=~": "~", "~~": "~", "=>": ">=", "=<": "<=", "like": "~", "contains": "~", "matches": "~",
    "equals": "=", "startswith": "~", "endswith": "~", ",": "and",
}  # fmt: skip

_TWICE = "compare twice: optim.lr > 1e-4 and optim.lr < 1e-2"


@final
class Cursor:
    """The place up to which a query has been read."""

    def __init__(self, written: Written) -> None:
        self._written = written
        self._tokens = split(written)
        self._at = 0

    @property
    def next(self) -> Token:
        """What stands there; the last token is the end."""
        return self._tokens[self._at]

    def take(self) -> Token:
        """What stands there, and go on."""
        token = self.next
        self._at += 1
        return token

    def take_mark(self, kind: str) -> bool:
        """Whether a mark stands there; if so, go on."""
        is_there = self.next.kind == kind
        self._at += is_there
        return is_there

    def take_word(self, word: str) -> bool:
        """Whether a word stands there, in any case; if so, go on."""
        is_there = self.next.kind == "word" and self.next.text.casefold() == word
        self._at += is_there
        return is_there

    def close(self, opened: Token, example: str = "") -> Token:
        """Go on behind the parenthesis that closes ``opened``; a function gives an example."""
        if self.next.kind == "end":
            what = "a parenthesis is opened and not closed"
            raise self.mistake(what, hint="add )", where=opened)
        if self.next.kind != ")":
            expected = "')'" if example else "and, or, ')'"
            raise self.unexpected(expected, example or self.meant())
        return self.take()

    def finish(self) -> None:
        """Complain about whatever is left."""
        if self.next.kind == "end":
            return
        if self.next.kind == ")":
            raise self.mistake("a parenthesis is closed that was not opened")
        if self.next.kind == "sign" and self.next.text in SIGNS:
            raise self.mistake("one comparison after the other", hint=_TWICE)
        raise self.unexpected("and, or, or the end", self.meant())

    def mistake(self, what: str, *, hint: str = "", where: Token | None = None) -> ConfigError:
        """The error that points at the token that stands there, or at another."""
        return self._written.mistake(where or self.next, what, hint=hint)

    def unexpected(self, expected: str, hint: str) -> ConfigError:
        """The error of a token that cannot stand there."""
        got = "the end" if self.next.kind == "end" else repr(self.next.text)
        return self.mistake(f"expected {expected}, got {got}", hint=hint)

    def meant(self) -> str:
        """What somebody meant who typed the token that stands there; empty if nobody knows."""
        meant = _MEANT.get(self.next.text.casefold(), "")
        if meant:
            return f"did you mean {meant!r}?"
        if self.next.text.casefold() == "between":
            return _TWICE
        before, after = (self._tokens[max(self._at - 1, 0)], self._tokens[self._at + 1 :][:1])
        if after and after[0].kind == "sign":
            return "join two tests by and, or by or"
        are_words = self.next.kind == before.kind == "word"
        return _meant_together(before.text, self.next.text) if are_words else ""


def _meant_together(one: str, other: str) -> str:
    """How two words after each other are written as one value."""
    if read_length(f"{one}{other}") is not None:
        return f"write {one}{other}"
    if read_period(f"{one}T{other}", datetime.now(UTC)) is not None:
        return f"write {one}T{other}"
    if read_number(one) is not None:
        return f"a length is written {ACCEPTED_TIMES}, 10ep or 500st"
    return f"a text with spaces stands in quotes: '{one} {other}'"
