"""Checks of every request before it is answered: name of the server, origin, path, forgery."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, final
from urllib.parse import parse_qsl, unquote_to_bytes

from epochal.web.site.api_error import ApiError, not_found

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_HEADER_BYTES = 16 * 1024
MAX_PARAMETERS = 300
CSRF_HEADER = "x-epochal-csrf"
SAFE_METHODS = ("GET",)

_PRINTABLE = re.compile(rb"[\x21-\x7e]*")
_HEX = re.compile(rb"%(?![0-9A-Fa-f]{2})")

HEADERS = {
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' blob:",
            "font-src 'self'",
            "connect-src 'self'",
            "manifest-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types svelte-trusted-html",
        )
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "cache-control": "no-store",
}
"""The headers of every answer."""


@final
@dataclass(frozen=True, slots=True)
class Headers:
    """The headers of a request, by lower-case name."""

    values: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, raw: Iterable[tuple[bytes, bytes]]) -> Headers:
        """The headers of an ASGI scope; ApiError if they are too large."""
        values: dict[str, list[str]] = {}
        size = 0
        for name, value in raw:
            size += len(name) + len(value)
            values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if size > MAX_HEADER_BYTES:
            raise ApiError(431, "the headers are too large")
        return cls(values)

    def only(self, name: str) -> str | None:
        """The value of a header; None if it is missing, ApiError if it was sent twice."""
        found = self.values.get(name, ())
        if len(found) > 1:
            raise ApiError(400, f"the header {name} was sent more than once")
        return found[0] if found else None

    def cookie(self, name: str) -> str:
        """The value of a cookie; empty without one, or if there are several of that name."""
        pairs = (one.strip().partition("=") for one in (self.only("cookie") or "").split(";"))
        found = [value for key, _, value in pairs if key == name]
        return found[0] if len(found) == 1 else ""


def check_host(headers: Headers, hosts: frozenset[str]) -> str:
    """The name under which the server was called; ApiError if it is not one of its names.

    So a foreign name that leads to this machine, as in DNS rebinding, gets no answer.
    """
    host = headers.only("host")
    if host is None or host not in hosts:
        raise ApiError(
            403, "this server does not answer under that name", "open the link that it printed"
        )
    return host


def check_origin(headers: Headers, method: str, host: str, *, is_page: bool) -> None:
    """Refuse requests that the page of another site made.

    ``is_page``: another site may link to it, but not load it in any other way.
    """
    origin, site = headers.only("origin"), headers.only("sec-fetch-site")
    is_change = method not in SAFE_METHODS
    mode, target = headers.only("sec-fetch-mode"), headers.only("sec-fetch-dest")
    is_link = is_page and not is_change and (mode, target) == ("navigate", "document")
    if site not in (None, "same-origin", "none") and not is_link:
        raise _foreign()
    if origin is None:
        if is_change:
            raise _foreign()
    elif origin != f"http://{host}":
        raise _foreign()


def _foreign() -> ApiError:
    return ApiError(403, "the request came from another site", "use the page of this server")


def check_content(headers: Headers) -> None:
    """Refuse bodies that are not JSON, which the forms of other sites could send."""
    kind = (headers.only("content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(400, "the body is not application/json", "send JSON")
    if headers.only("content-encoding") not in (None, "identity"):
        raise ApiError(400, "the body is encoded", "send it without content-encoding")


def split_path(raw: bytes) -> tuple[str, ...]:
    """The segments of a path, decoded once; ApiError for any that could mean another path."""
    if not raw.startswith(b"/") or not _PRINTABLE.fullmatch(raw) or _HEX.search(raw):
        raise not_found()
    if raw == b"/":
        return ()
    return tuple(map(_decode, raw[1:].split(b"/")))


def _decode(segment: bytes) -> str:
    try:
        text = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise not_found() from None
    is_safe = text.isprintable() and not {"/", "\\"} & {*text}
    if text in ("", ".", "..") or not is_safe:
        raise not_found()
    return text


def split_query(raw: bytes) -> list[tuple[str, str]]:
    """The names and values of a query string."""
    try:
        return parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(raw),
            errors="strict",
            max_num_fields=MAX_PARAMETERS,
        )
    except ValueError:
        raise ApiError(400, "the query of the address cannot be read") from None
