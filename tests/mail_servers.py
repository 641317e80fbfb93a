"""Local servers that receive mail: SMTP and a webhook."""

from __future__ import annotations

import email
import ssl
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).parent / "data" / "mail"
CERTIFICATE = DATA / "certificate.pem"
PASSWORD = "correct-horse-battery"


@dataclass
class Office:
    """The mails that an SMTP server accepted, and what it refuses."""

    refused: tuple[str, ...] = ()
    answers: list[str] = field(default_factory=list)
    """Answers that refuse the next mails, such as ``451 later``."""

    port: int = 0
    received: list[EmailMessage] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        if address in self.refused:
            return "550 unknown address"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.answers:
            return self.answers.pop(0)
        message = email.message_from_bytes(envelope.content, policy=default)
        assert isinstance(message, EmailMessage)
        self.received.append(message)
        self.recipients += envelope.rcpt_tos
        return "250 taken"

    def authenticate(
        self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        user, password = data.login.decode(), data.password.decode()
        self.logins.append(user)
        return AuthResult(success=password == PASSWORD, handled=False)


@contextmanager
def smtp_server(*, security: str = "none", login: bool = False, **office: Any) -> Iterator[Office]:
    """A server with the given ``security``, with or without login."""
    found = Office(**office)
    context = None
    if security != "none":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE, DATA / "key.pem")
    options: dict[str, Any] = {}
    if login:
        is_late = security == "starttls"  # the library supports no other encryption
        options = {"auth_required": is_late, "auth_require_tls": is_late}
        options["authenticator"] = found.authenticate
    if security == "starttls":
        options |= {"tls_context": context, "require_starttls": True}
    controller = Controller(
        found,
        hostname="localhost",
        port=0,
        ssl_context=context if security == "tls" else None,
        **options,
    )
    _start(controller)
    found.port = controller.server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        controller.stop(no_assert=True)


def _start(controller: Controller) -> None:
    """Start without the self-test, which does not support ports chosen by the system."""
    ready = threading.Event()
    controller._thread = threading.Thread(target=controller._run, args=(ready,), daemon=True)
    controller._thread.start()
    assert ready.wait(60)


@dataclass
class Hook:
    """The requests that a webhook got, and its answers."""

    answers: list[int] = field(default_factory=list)
    """Codes of the next answers; 200 when there are no more. 0 never answers."""

    location: str = ""
    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def http_server(*answers: int, location: str = "") -> Iterator[Hook]:
    """A local HTTP endpoint."""
    hook = Hook(list(answers), location)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._take()

        def do_GET(self) -> None:
            self._take()

        def _take(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            hook.bodies.append(self.rfile.read(size))
            hook.requests.append((self.command, self.path, dict(self.headers)))
            code = hook.answers.pop(0) if hook.answers else 200
            if not code:
                hook.is_over.wait(60)
                return
            self.send_response(code)
            if hook.location:
                self.send_header("Location", hook.location)
            self.end_headers()
            self.wfile.write(b'{"said": "so"}')

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hook.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hook
    finally:
        hook.is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()
