"""The channels that send mail: SMTP, webhooks, and the services of Apprise."""

from __future__ import annotations

import http.client
import logging
import smtplib
import ssl
import urllib.error
import urllib.request
from contextlib import contextmanager
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, getaddresses
from typing import TYPE_CHECKING, Literal, final
from urllib.parse import urlsplit

from typing_extensions import override

from epochal import durable
from epochal.records.layout.process import host_name
from epochal.records.mail.mailbox import make_id
from epochal.records.mail.outbox import Channel, SendError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from epochal.records.mail.mailbox import Mail

_SMTP_PORTS = {"starttls": 587, "tls": 465, "none": 25}
# Keep long subjects on one line: Python may double a space where it folds them.
_SMTP_POLICY = SMTP.clone(max_line_length=900)
_SMTP_PERMANENT = 500  # codes from here on are permanent failures

_HTTP_TEMPORARY = (408, 425, 429)  # client errors after which another attempt may succeed
_MAX_HTTP_REPLY = 300

_APPRISE_INSTALL = "pip install 'epochal[apprise]'"
_APPRISE_MAX_TEXT = 4000  # most services truncate or refuse longer texts
_APPRISE_TYPES = {"info": "success", "warning": "warning", "error": "failure"}


@final
class Smtp(Channel):
    """E-mail through an SMTP server, whose certificate this machine must trust.

    Args:
        host: Name of the server.
        to: Recipient: one address, or several.
        sender: Address of the sender; by default ``user``, if that is an address.
        port: By default that of ``security``: 587, 465 or 25.
        security: Encryption: from the second command on, from the start, or none.
        user: Login name, if the server wants one.
        password: Its password, as ``${env:NAME}``.
    """

    def __init__(
        self,
        *,
        host: str,
        to: str | list[str],
        sender: str | None = None,
        port: int | None = None,
        security: Literal["starttls", "tls", "none"] = "starttls",
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        self._host, self._port = host, port or _SMTP_PORTS[security]
        self._to = [to] if isinstance(to, str) else list(to)
        self._sender = sender or (user if user and "@" in user else f"epochal@{host_name()}")
        self._security = security
        self._user, self._password = user, password

    @override
    def send(self, mail: Mail, *, seconds: float) -> None:
        message = self._write(mail)
        recipients = [address for _, address in getaddresses(self._to)]
        try:
            with self._connect(seconds) as server:
                refused = server.send_message(message, self._sender, recipients)
        except smtplib.SMTPRecipientsRefused as error:
            raise _refusal(error.recipients, is_total=True) from error
        except smtplib.SMTPNotSupportedError as error:
            raise SendError(f"{self._host}: {error}", is_final=True) from error
        except smtplib.SMTPResponseException as error:
            words = _decode(error.smtp_error)
            what = f"{self._host} said {error.smtp_code} {words}".strip()
            raise SendError(what, is_final=error.smtp_code >= _SMTP_PERMANENT) from error
        except ssl.SSLCertVerificationError as error:
            hint = "SSL_CERT_FILE can name a file with further certificates"
            what = f"{self._host}: {error.verify_message}; {hint}"
            raise SendError(what, is_final=True) from error
        except OSError as error:  # no connection, no response, and all other errors of smtplib
            raise SendError(f"{self._host}: {error}") from error
        if refused:
            raise _refusal(refused, is_total=False)

    def _connect(self, seconds: float) -> smtplib.SMTP:
        context = ssl.create_default_context()
        if self._security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                self._host, self._port, timeout=seconds, context=context
            )
        else:
            server = smtplib.SMTP(self._host, self._port, timeout=seconds)
        try:
            if self._security == "starttls":
                server.starttls(context=context)
            if self._user is not None:
                server.login(self._user, self._password or "")
        except BaseException:
            server.close()
            raise
        return server

    def _write(self, mail: Mail) -> EmailMessage:
        message = EmailMessage(_SMTP_POLICY)
        message["Subject"] = _encodable(mail.subject)
        message["From"] = self._sender
        message["To"] = ", ".join(self._to)
        message["Date"] = formatdate(localtime=True)
        # Mail programs show a repeated id once, and mails with one reference as one thread.
        message["Message-ID"] = f"<{mail.id}.{mail.kind}@epochal>"
        message["References"] = f"<{make_id(mail.run or mail.id)}@epochal>"
        message["X-Epochal-Kind"] = mail.kind
        if mail.level == "error":
            message["Importance"] = "high"
        message.set_content(_encodable(mail.text))
        return message


def _refusal(refused: dict[str, tuple[int, bytes]], *, is_total: bool) -> SendError:
    said = "; ".join(f"{who}: {code} {_decode(text)}" for who, (code, text) in refused.items())
    others = "" if is_total else ", the others received it"
    is_final = all(code >= _SMTP_PERMANENT for code, _ in refused.values())
    return SendError(f"refused{others}: {said}", is_final=is_final)


def _decode(text: bytes | str) -> str:
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return " ".join(words.split())


def _encodable(text: str) -> str:
    """``text`` with escapes for what UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()


@final
class Webhook(Channel):
    """A POST with the mail as JSON: ``kind``, ``level``, ``subject``, ``text``, ``run``, ...

    Args:
        url: Where to; as ``${env:NAME}`` if the address itself is a secret.
        headers: Further headers, such as ``{Authorization: "Bearer ${env:TOKEN}"}``.
    """

    def __init__(self, *, url: str, headers: dict[str, str] | None = None) -> None:
        self._url = url
        self._headers: Mapping[str, str] = headers or {}

    @override
    def send(self, mail: Mail, *, seconds: float) -> None:
        # Errors name the host only: the rest of an address may be secret.
        parts = urlsplit(self._url)
        host = parts.hostname or "the address"
        if parts.scheme not in ("http", "https"):
            raise SendError(f"{host} is not an http or https address", is_final=True)
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
                reply.read(_MAX_HTTP_REPLY)
        except urllib.error.HTTPError as error:
            with error:
                raise _http_error(host, error) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise SendError(f"{host}: {str(reason) or type(reason).__name__}") from error


@final
class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would turn the POST into a GET and send secrets to another host."""

    @override
    def redirect_request(self, *_: object) -> None:
        return None


def _http_error(host: str, error: urllib.error.HTTPError) -> SendError:
    if 300 <= error.code < 400:
        target = urlsplit(error.headers.get("Location", "")).hostname or "another address"
        what = f"{host} redirects ({error.code}, to {target}); write that address into url"
        return SendError(what, is_final=True)
    try:
        words = " ".join(error.read(_MAX_HTTP_REPLY).decode("utf-8", "replace").split())
    except (OSError, http.client.HTTPException):
        words = ""
    what = f"{host} said {error.code} {error.reason}" + (f": {words}" if words else "")
    return SendError(what, is_final=400 <= error.code < 500 and error.code not in _HTTP_TEMPORARY)


@final
class Apprise(Channel):
    """Slack, Telegram, DingTalk, WeCom, Feishu and others, by the addresses of Apprise.

    Args:
        urls: One address, or several; each as ``${env:NAME}``, since they contain the keys.
    """

    def __init__(self, *, urls: str | list[str]) -> None:
        self._urls = [urls] if isinstance(urls, str) else list(urls)

    @override
    def send(self, mail: Mail, *, seconds: float) -> None:
        try:
            import apprise
        except ImportError as error:
            raise SendError(f"apprise is not installed: {_APPRISE_INSTALL}") from error
        services = apprise.Apprise()
        if not all(services.add(url) for url in self._urls):
            raise SendError("Apprise does not support one of the addresses", is_final=True)
        text = mail.text
        if len(text) > _APPRISE_MAX_TEXT:
            text = f"{text[:_APPRISE_MAX_TEXT]}\n…"
        with _captured_log("apprise") as messages:
            kind = _APPRISE_TYPES[mail.level]
            is_sent = services.notify(title=mail.subject, body=text, notify_type=kind)
        if not is_sent:
            raise SendError(": ".join(["Apprise could not send it", *messages[-1:]]))


@contextmanager
def _captured_log(name: str) -> Iterator[list[str]]:
    """The warnings that a logger receives in a block: Apprise reports errors only there."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
