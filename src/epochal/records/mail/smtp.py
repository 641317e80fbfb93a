"""E-mail through an SMTP server, encrypted and with a login."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, getaddresses
from typing import TYPE_CHECKING, Literal, final

from typing_extensions import override

from epochal.records.mail.channel import Channel, SendError
from epochal.records.mail.letter import identify
from epochal.records.process import host_name

if TYPE_CHECKING:
    from epochal.records.mail.letter import Mail

_PORTS = {"starttls": 587, "tls": 465, "none": 25}
# Long subjects stay in one line: where Python breaks them, it may double a blank.
_POLICY = SMTP.clone(max_line_length=900)
_FINAL = 500  # from this code on a server means that another try is of no use


@final
class Smtp(Channel):
    """E-mail through an SMTP server; its certificate must be one that this machine trusts.

    Args:
        host: Name of the server.
        to: Who gets it: one address, or several.
        sender: Whose name is on it; ``user`` if that is an address.
        port: By default that of ``security``: 587, 465 or 25.
        security: How the connection is encrypted: from its second word on, from the first, or not.
        user: Name for the login, if the server wants one.
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
        self._host, self._port = host, port or _PORTS[security]
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
            raise _refusal(error.recipients, everybody=True) from error
        except smtplib.SMTPNotSupportedError as error:
            raise SendError(f"{self._host}: {error}", is_final=True) from error
        except smtplib.SMTPResponseException as error:
            words = _decode(error.smtp_error)
            what = f"{self._host} said {error.smtp_code} {words}".strip()
            raise SendError(what, is_final=error.smtp_code >= _FINAL) from error
        except ssl.SSLCertVerificationError as error:
            hint = "SSL_CERT_FILE can name a file with further certificates"
            what = f"{self._host}: {error.verify_message}; {hint}"
            raise SendError(what, is_final=True) from error
        except OSError as error:  # nobody there, nothing said, and whatever else smtplib raises
            raise SendError(f"{self._host}: {error}") from error
        if refused:
            raise _refusal(refused, everybody=False)

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
        message = EmailMessage(_POLICY)
        message["Subject"] = _clean(mail.subject)
        message["From"] = self._sender
        message["To"] = ", ".join(self._to)
        message["Date"] = formatdate(localtime=True)
        # A mail that is sent twice is one mail, and mails of one run are one thread.
        message["Message-ID"] = f"<{mail.id}.{mail.kind}@epochal>"
        message["References"] = f"<{identify(mail.run or mail.id)}@epochal>"
        message["X-Epochal-Kind"] = mail.kind
        if mail.level == "error":
            message["Importance"] = "high"
        message.set_content(_clean(mail.text))
        return message


def _refusal(refused: dict[str, tuple[int, bytes]], *, everybody: bool) -> SendError:
    said = "; ".join(f"{who}: {code} {_decode(text)}" for who, (code, text) in refused.items())
    others = "" if everybody else ", the others have it"
    is_final = all(code >= _FINAL for code, _ in refused.values())
    return SendError(f"refused{others}: {said}", is_final=is_final)


def _decode(text: bytes | str) -> str:
    words = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return " ".join(words.split())


def _clean(text: str) -> str:
    """``text`` without what UTF-8 cannot say."""
    return text.encode("utf-8", "backslashreplace").decode()
