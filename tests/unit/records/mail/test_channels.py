"""SMTP, webhooks and Apprise against real servers on this machine."""

from __future__ import annotations

import json
import socket
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from epochal.records.mail.channels import Apprise, Smtp, Webhook
from epochal.records.mail.outbox import SendError
from mail_servers import CERTIFICATE, PASSWORD, Office, http_server, smtp_server

if TYPE_CHECKING:
    from epochal.records.mail.mailbox import Mail

ANN, BOB = "ann@example.org", "bob@example.org"

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


def send(office: Office, mail: Mail, **options: Any) -> None:
    given = {"to": ANN, "security": "none", **options}
    Smtp(host="localhost", port=office.port, **given).send(mail, seconds=10)


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))


def test_an_email_arrives_as_it_was_written(mail: Mail) -> None:
    with smtp_server() as office:
        send(office, mail, to=[ANN, BOB], sender="lab@example.org")
    (message,) = office.received
    assert message["Subject"] == mail.subject
    assert message["From"] == "lab@example.org"
    assert message["To"] == f"{ANN}, {BOB}"
    assert message["X-Epochal-Kind"] == "failed"
    assert message["Importance"] == "high"
    assert message.get_content().replace("\r\n", "\n") == mail.text
    assert office.recipients == [ANN, BOB]


def test_emails_of_one_run_form_a_thread_and_a_repeated_one_keeps_its_id(mail: Mail) -> None:
    with smtp_server() as office:
        send(office, mail)
        send(office, mail)
        send(office, replace(mail, kind="finished"))
    first, again, other = office.received
    assert first["Message-ID"] == again["Message-ID"] != other["Message-ID"]
    assert first["References"] == other["References"]
    assert other["Importance"] is None


def test_characters_that_utf8_cannot_encode_are_escaped(mail: Mail) -> None:
    strange = replace(mail, subject="a \udcff b", text="x\udcff\n" + "y" * 3000 + "\n.\n")
    with smtp_server() as office:
        send(office, strange)
    (message,) = office.received
    assert message["Subject"] == "a \\udcff b"
    assert message.get_content().replace("\r\n", "\n") == "x\\udcff\n" + "y" * 3000 + "\n.\n"


@pytest.mark.parametrize("security", ["starttls", "tls"])
@pytest.mark.usefixtures("trusted")
def test_the_connection_is_encrypted_and_logged_in(mail: Mail, security: str) -> None:
    with smtp_server(security=security, login=True) as office:
        send(office, mail, security=security, user=ANN, password=PASSWORD)
    assert office.logins == [ANN]
    (message,) = office.received
    assert message["From"] == ANN  # the user, where no sender is given


@pytest.mark.usefixtures("trusted")
def test_a_wrong_password_is_final_and_not_in_the_error(mail: Mail) -> None:
    with (
        smtp_server(security="starttls", login=True) as office,
        pytest.raises(SendError, match="said 535") as caught,
    ):
        send(office, mail, security="starttls", user=ANN, password="wrong-password")
    assert caught.value.is_final
    assert "wrong-password" not in str(caught.value)
    assert not office.received


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_server_with_an_untrusted_certificate_gets_nothing(mail: Mail, security: str) -> None:
    with (
        smtp_server(security=security, login=True) as office,
        pytest.raises(SendError, match="SSL_CERT_FILE") as caught,
    ):
        send(office, mail, security=security, user=ANN, password=PASSWORD)
    assert caught.value.is_final
    assert not office.logins


def test_a_server_that_cannot_encrypt_gets_nothing(mail: Mail) -> None:
    with smtp_server() as office, pytest.raises(SendError, match="STARTTLS") as caught:
        send(office, mail, security="starttls")
    assert caught.value.is_final
    assert not office.received


def test_a_refused_address_is_named(mail: Mail) -> None:
    with (
        smtp_server(refused=(BOB,)) as office,
        pytest.raises(SendError, match=r"refused: bob@example.org: 550 unknown") as caught,
    ):
        send(office, mail, to=BOB)
    assert caught.value.is_final


def test_of_several_addresses_in_one_text_the_others_get_it(mail: Mail) -> None:
    with (
        smtp_server(refused=(BOB,)) as office,
        pytest.raises(SendError, match="refused, the others received it: bob") as caught,
    ):
        send(office, mail, to=f"{ANN}, {BOB}")
    assert caught.value.is_final
    assert office.recipients == [ANN]


def test_the_smtp_code_decides_whether_to_retry(mail: Mail) -> None:
    for answer, is_final in {"451 come back": False, "554 spam": True}.items():
        with (
            smtp_server(answers=[answer]) as office,
            pytest.raises(SendError, match=f"localhost said {answer}") as caught,
        ):
            send(office, mail)
        assert caught.value.is_final is is_final, answer


def test_a_server_that_is_down_is_a_temporary_error(mail: Mail) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and no other process gets the port
        port = deaf.getsockname()[1]
        channels = [
            Smtp(host="127.0.0.1", port=port, to=ANN),
            Webhook(url=f"http://127.0.0.1:{port}/x"),
        ]
        for channel in channels:
            with pytest.raises(SendError, match=r"127\.0\.0\.1: .*refused") as caught:
                channel.send(mail, seconds=5)
            assert not caught.value.is_final


def test_a_server_that_never_answers_times_out(mail: Mail) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, http_server(0) as hook:
        channels = [
            Smtp(host="127.0.0.1", port=silent.getsockname()[1], to=ANN),
            Webhook(url=hook.url),
        ]
        for channel in channels:
            with pytest.raises(SendError, match="timed out") as caught:
                channel.send(mail, seconds=0.2)
            assert not caught.value.is_final


def test_a_webhook_posts_the_mail_as_json(mail: Mail) -> None:
    with http_server() as hook:
        Webhook(url=hook.url, headers={"Authorization": "Bearer abc"}).send(mail, seconds=10)
    ((method, path, headers),) = hook.requests
    assert (method, path) == ("POST", "/hook")
    assert headers["Authorization"] == "Bearer abc"
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    body = json.loads(hook.bodies[0])
    assert body == mail.to_json()
    assert (body["kind"], body["level"], body["facts"]["best"]) == ("failed", "error", 0.91234)


def test_the_http_code_decides_whether_to_retry(mail: Mail) -> None:
    table = {500: False, 503: False, 429: False, 408: False, 400: True, 401: True, 404: True}
    for code, is_final in table.items():
        with http_server(code) as hook, pytest.raises(SendError) as caught:
            Webhook(url=hook.url).send(mail, seconds=10)
        assert caught.value.is_final is is_final, code
        assert str(caught.value).startswith(f"127.0.0.1 said {code}")
        assert "so" in str(caught.value)  # the body of the response


def test_a_redirect_is_not_followed(mail: Mail) -> None:
    for code in (301, 302, 303, 307, 308):
        with (
            http_server() as other,
            http_server(code, location=f"{other.url}?token=abc") as hook,
            pytest.raises(SendError, match=rf"redirects \({code}, to 127.0.0.1\)") as caught,
        ):
            Webhook(url=hook.url, headers={"Authorization": "Bearer abc"}).send(mail, seconds=10)
        assert caught.value.is_final
        assert not other.requests
        assert "abc" not in str(caught.value)


def test_a_response_that_is_not_http_is_a_send_error(mail: Mail) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"hello?\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(SendError, match=r"127\.0\.0\.1"):
            Webhook(url=f"http://127.0.0.1:{server.getsockname()[1]}").send(mail, seconds=5)
        thread.join()


def test_a_webhook_needs_an_address_of_the_web(mail: Mail) -> None:
    with pytest.raises(SendError, match="is not an http or https address"):
        Webhook(url="file:///etc/passwd").send(mail, seconds=1)


def apprise_address(url: str) -> str:
    return url.replace("http://", "json://")


def test_apprise_sends_to_its_addresses(mail: Mail) -> None:
    with http_server() as hook:
        Apprise(urls=apprise_address(hook.url)).send(mail, seconds=10)
    body = json.loads(hook.bodies[0])
    assert body["title"] == mail.subject
    assert "ValueError: schöne Formen" in body["message"]
    assert body["type"] == "failure"


def test_an_apprise_failure_shows_what_apprise_logged(mail: Mail) -> None:
    with http_server(500) as hook, pytest.raises(SendError, match="error=500"):
        Apprise(urls=[apprise_address(hook.url)]).send(mail, seconds=10)


def test_an_address_that_apprise_does_not_support_is_final_and_not_shown(mail: Mail) -> None:
    with pytest.raises(SendError, match="Apprise does not support") as caught:
        Apprise(urls="pigeon://secret-loft").send(mail, seconds=1)
    assert caught.value.is_final
    assert "secret-loft" not in str(caught.value)


def test_without_the_package_apprise_says_how_to_install_it(
    mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(SendError, match=r"pip install 'epochal\[apprise\]'"):
        Apprise(urls="json://localhost").send(mail, seconds=1)
