"""Mail as JSON, posted to an address of the web."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, final
from urllib.parse import urlsplit

from typing_extensions import override

from epochal import durable
from epochal.records.mail.channel import Channel, SendError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from epochal.records.mail.letter import Mail

_LATER = (408, 425, 429)  # of those that blame the sender: come back
_MAX_REPLY = 300


@final
class Webhook(Channel):
    """A POST with the mail as JSON: ``kind``, ``level``, ``subject``, ``text``, ``run``, ...

    Args:
        url: Where to; as ``${env:NAME}`` if knowing it is all that one needs to write there.
        headers: Further ones, such as ``{Authorization: "Bearer ${env:TOKEN}"}``.
    """

    def __init__(self, *, url: str, headers: dict[str, str] | None = None) -> None:
        self._url = url
        self._headers: Mapping[str, str] = headers or {}

    @override
    def send(self, mail: Mail, *, seconds: float) -> None:
        # An address has more in it than others need to know.
        parts = urlsplit(self._url)
        host = parts.hostname or "the address"
        if parts.scheme not in ("http", "https"):
            raise SendError(f"{host} is not of the web: http or https", is_final=True)
        request = urllib.request.Request(
            self._url,
            data=durable.encode_json(mail.to_json()),
            headers={
                "Content-Type": "application/json; charset=utf-8",
                "User-Agent": "epochal",
                **self._headers,
            },
            method="POST",
        )
        opener = urllib.request.build_opener(_NoRedirect)
        try:
            with opener.open(request, timeout=seconds) as reply:
                reply.read(_MAX_REPLY)
        except urllib.error.HTTPError as error:
            with error:
                raise _explain(host, error) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise SendError(f"{host}: {str(reason) or type(reason).__name__}") from error


@final
class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nobody: the mail would arrive as an empty GET, and secrets at somebody else's."""

    @override
    def redirect_request(self, *_: object) -> None:
        return None


def _explain(host: str, error: urllib.error.HTTPError) -> SendError:
    if 300 <= error.code < 400:
        target = urlsplit(error.headers.get("Location", "")).hostname or "another address"
        what = f"{host} sends elsewhere ({error.code}, to {target}); write that address into url"
        return SendError(what, is_final=True)
    try:
        words = " ".join(error.read(_MAX_REPLY).decode("utf-8", "replace").split())
    except (OSError, http.client.HTTPException):
        words = ""
    what = f"{host} said {error.code} {error.reason}" + (f": {words}" if words else "")
    return SendError(what, is_final=400 <= error.code < 500 and error.code not in _LATER)
