"""What a route is: method, path, who may call it, its fields, and the function that answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Literal, final

from epochal.web.site.api_error import ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from epochal.web.site.sessions import WebSession
    from epochal.web.site.site import Site

Access = Literal["public", "read", "edit", "launch"]
"""``public`` needs no session; the others are the capabilities of a session."""

Capability = Literal["read", "edit", "launch"]
FieldKind = Literal["text", "texts", "integer", "number", "boolean", "values", "cells"]
"""``values`` is an object of scalars, and of lists of such objects; ``cells`` a list of rows of
objects."""

RESERVED = ("api", "assets")
"""First parts of paths that no page of the browser has."""

MAX_TEXT = 4_000
MAX_ITEMS = 1_000
MAX_VALUES = 200
MAX_INTEGER = 2**53


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ApiField:
    """One field of a query or of a JSON body."""

    name: str
    kind: FieldKind = "text"
    default: Any = None  # of its kind
    required: bool = False
    choices: tuple[str, ...] = ()
    least: int = 0
    most: int = MAX_INTEGER
    """Of a number; for texts, how many there may be."""

    length: int = MAX_TEXT
    """How many characters a text may have."""

    @property
    def is_nullable(self) -> bool:
        """Whether null means that it is not given."""
        return self.kind == "text" and self.default is None and not self.required

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        text: dict[str, Any] = {"type": "string", "maxLength": self.length}
        if self.is_nullable:
            text["type"] = ["string", "null"]
        if self.choices:
            text = {"type": "string", "enum": list(self.choices)}
        if self.kind == "texts":
            most = min(self.most, MAX_ITEMS)
            return {"type": "array", "items": text, "minItems": self.least, "maxItems": most}
        if self.kind in ("integer", "number"):
            return {"type": self.kind, "minimum": self.least, "maximum": self.most}
        if self.kind == "values":
            value = {"type": ["number", "boolean", "string", "null", "array"]}
            return {"type": "object", "additionalProperties": value, "maxProperties": MAX_VALUES}
        if self.kind == "cells":
            row = {"type": "array", "items": {"type": "object"}}
            return {"type": "array", "items": row, "maxItems": MAX_ITEMS}
        return text if self.kind == "text" else {"type": "boolean"}


@final
@dataclass(frozen=True, slots=True)
class ApiCall:
    """One request that passed all checks."""

    path: Mapping[str, str]
    """The values of the ``{names}`` of the path."""

    query: Mapping[str, Any]
    body: Mapping[str, Any]
    session: WebSession | None = None
    last_event_id: str = ""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class RawAnswer:
    """The bytes of an answer."""

    content: bytes
    type: str = "application/octet-stream"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class FileAnswer:
    """A file that is sent as a download, piece by piece."""

    file: IO[bytes]
    """Open at its beginning; it is closed when it was sent."""

    size: int
    name: str
    """The name that a browser gives it: letters, digits, dots, dashes and underscores."""


@final
@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """An answer in JSON with additional headers."""

    value: object
    headers: Mapping[str, str] = field(default_factory=dict)


@final
@dataclass(frozen=True, slots=True)
class EventStream:
    """Texts that are sent as they come, until the browser leaves or signs out."""

    parts: AsyncIterator[str]


Answering = Callable[["Site", ApiCall], object]
"""Gives JSON values, or one of the answers above."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ApiRoute:
    """A row of the route table."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    """Such as ``/api/runs/{id}``."""

    access: Access
    answer: Answering
    summary: str
    query: tuple[ApiField, ...] = ()
    body: tuple[ApiField, ...] = ()
    type: str = "application/json"
    """The type of the answer, for the description of the API."""

    is_page: bool = False
    """Whether another site may link to it: it is the same for everyone and has no data."""

    is_quick: bool = False
    """Whether it is answered without a thread: it reads no files."""

    @property
    def segments(self) -> tuple[str, ...]:
        """The parts of its path."""
        return tuple(self.path.strip("/").split("/")) if self.path != "/" else ()

    def match(self, segments: Sequence[str]) -> dict[str, str] | None:
        """The values of the path's names, if the segments of a request fit."""
        own = self.segments
        if len(own) != len(segments):
            return None
        found = {}
        for mine, theirs in zip(own, segments, strict=True):
            if mine == "{page}" and theirs in RESERVED:
                return None
            if mine.startswith("{"):
                found[mine.strip("{}")] = theirs
            elif mine != theirs:
                return None
        return found


def read_query(fields: Sequence[ApiField], pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The values of a query string; ApiError for unknown, repeated or wrong ones."""
    known = {one.name: one for one in fields}
    given: dict[str, list[str]] = {}
    for name, text in pairs:
        if name not in known:
            raise ApiError(422, f"{name[:80]!r}: unknown parameter", _known(known))
        given.setdefault(name, []).append(text)
    values: dict[str, Any] = {}
    for one in fields:
        texts = given.get(one.name)
        if texts is None:
            values[one.name] = _missing(one)
        elif one.kind == "texts":
            values[one.name] = _check(one, texts)
        elif len(texts) > 1:
            raise ApiError(422, f"{one.name}: given {len(texts)} times", "give it once")
        else:
            values[one.name] = _check(one, _parse(one, texts[0]))
    return values


def read_body(fields: Sequence[ApiField], given: object) -> dict[str, Any]:
    """The values of a JSON body; ApiError for unknown or wrong ones."""
    if not isinstance(given, dict):
        raise ApiError(422, "the body is not a JSON object", "send {...}")
    known = {one.name: one for one in fields}
    for name in given:
        if name not in known:
            raise ApiError(422, f"{name[:80]!r}: unknown field", _known(known))
    return {
        one.name: _check(one, given[one.name]) if one.name in given else _missing(one)
        for one in fields
    }


def _known(known: Mapping[str, ApiField]) -> str:
    return f"known: {', '.join(known)}" if known else "leave it out"


def _missing(one: ApiField) -> Any:  # noqa: ANN401 - of the kind of the field
    if one.required:
        raise ApiError(422, f"{one.name}: missing", f"it is a {one.kind}")
    if one.default is None and one.kind in ("texts", "values"):
        return [] if one.kind == "texts" else {}
    return one.default


def _parse(one: ApiField, text: str) -> object:
    """A value of a query string as its kind; the text if it cannot be read."""
    if one.kind == "boolean":
        return {"true": True, "false": False}.get(text, text)
    is_short = len(text) <= 30 and text.isascii() and "_" not in text
    if one.kind in ("integer", "number") and is_short:
        for convert in (int, float):
            try:
                return convert(text)
            except ValueError:
                continue
    return text


def _check(one: ApiField, value: object) -> Any:  # noqa: ANN401 - of the kind of the field
    if one.kind == "texts":
        if not isinstance(value, list) or not one.least <= len(value) <= min(one.most, MAX_ITEMS):
            most = min(one.most, MAX_ITEMS)
            raise ApiError(422, f"{one.name}: needs {one.least} to {most} texts")
        return [_check_text(one, item) for item in value]
    if one.kind == "text":
        return None if value is None and one.is_nullable else _check_text(one, value)
    if one.kind == "values":
        if not isinstance(value, dict) or not _is_flat(value, has_lists=True):
            raise ApiError(422, f"{one.name}: not an object of at most {MAX_VALUES} plain values")
        return value
    if one.kind == "cells":
        if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
            raise ApiError(422, f"{one.name}: not a list of rows")
        return value
    if one.kind == "boolean":
        if not isinstance(value, bool):
            raise ApiError(422, f"{one.name}: neither true nor false")
        return value
    is_number = isinstance(value, int) or (isinstance(value, float) and one.kind == "number")
    if isinstance(value, float) and value.is_integer() and one.kind == "integer":
        value, is_number = int(value), True  # 1.0 is an integer in JSON Schema
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_number:
        raise ApiError(422, f"{one.name}: not a {one.kind}")
    if not one.least <= value <= one.most:
        raise ApiError(422, f"{one.name}: must be from {one.least} to {one.most}")
    return value


def _is_flat(value: object, *, has_lists: bool) -> bool:
    """Whether an object has only plain values, or lists of objects that do."""
    if not isinstance(value, dict) or len(value) > MAX_VALUES:
        return False
    return all(
        _is_plain_text(key) and _is_plain(item, has_lists=has_lists) for key, item in value.items()
    )


def _is_plain(item: object, *, has_lists: bool) -> bool:
    if isinstance(item, list):
        is_short = has_lists and len(item) <= MAX_VALUES
        return is_short and all(_is_flat(inner, has_lists=False) for inner in item)
    if isinstance(item, str):
        return _is_plain_text(item)
    return item is None or isinstance(item, bool | int | float)


def _is_plain_text(text: str) -> bool:
    try:
        return len(text.encode()) <= MAX_TEXT
    except UnicodeEncodeError:
        return False


def _check_text(one: ApiField, value: object) -> str:
    if not isinstance(value, str) or len(value) > one.length:
        raise ApiError(422, f"{one.name}: not a text of at most {one.length} characters")
    if one.choices and value not in one.choices:
        raise ApiError(422, f"{one.name}: unknown {value[:80]!r}", f"one of {list(one.choices)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ApiError(422, f"{one.name}: not valid Unicode") from None
    return value
