"""E-mail against a real server: encrypted, with a login, and refused."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from epochal.records.mail.channel import SendError
from epochal.records.mail.smtp import Smtp
from mail_servers import CERTIFICATE, PASSWORD, Office, smtp_server

if TYPE_CHECKING:
    from epochal.records.mail import Mail

ANN, BOB = "ann@example.org", "bob@example.org"


def send(office: Office, mail: Mail, **options: Any) -> None:
    given = {"to": ANN, "security": "none", **options}
    Smtp(host="localhost", port=office.port, **given).send(mail, seconds=10)


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))


def test_a_mail_arrives_as_it_was_written(mail: Mail) -> None:
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


def test_mails_of_one_run_are_one_thread_and_a_repeated_mail_is_one_mail(mail: Mail) -> None:
    with smtp_server() as office:
        send(office, mail)
        send(office, mail)
        send(office, replace(mail, kind="finished"))
    first, again, other = office.received
    assert first["Message-ID"] == again["Message-ID"] != other["Message-ID"]
    assert first["References"] == other["References"]
    assert other["Importance"] is None


def test_strange_characters_do_no_harm(mail: Mail) -> None:
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
def test_a_wrong_password_is_final_and_not_repeated_in_the_error(mail: Mail) -> None:
    with (
        smtp_server(security="starttls", login=True) as office,
        pytest.raises(SendError, match="said 535") as caught,
    ):
        send(office, mail, security="starttls", user=ANN, password="wrong-password")
    assert caught.value.is_final
    assert "wrong-password" not in str(caught.value)
    assert not office.received


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_server_that_nobody_vouches_for_gets_nothing(mail: Mail, security: str) -> None:
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
        pytest.raises(SendError, match=r"refused: bob@example.org: 550 nobody lives") as caught,
    ):
        send(office, mail, to=BOB)
    assert caught.value.is_final


def test_of_several_addresses_in_one_text_the_others_get_it(mail: Mail) -> None:
    with (
        smtp_server(refused=(BOB,)) as office,
        pytest.raises(SendError, match="refused, the others have it: bob") as caught,
    ):
        send(office, mail, to=f"{ANN}, {BOB}")
    assert caught.value.is_final
    assert office.recipients == [ANN]


@pytest.mark.parametrize(("answer", "is_final"), [("451 come back", False), ("554 spam", True)])
def test_a_server_says_whether_to_come_back(mail: Mail, answer: str, is_final: bool) -> None:
    with (
        smtp_server(answers=[answer]) as office,
        pytest.raises(SendError, match=f"localhost said {answer}") as caught,
    ):
        send(office, mail)
    assert caught.value.is_final is is_final


def test_a_server_that_is_not_there_may_come_back(mail: Mail) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(SendError, match=r"127\.0\.0\.1: .*refused") as caught:
        Smtp(host="127.0.0.1", port=port, to=ANN).send(mail, seconds=5)
    assert not caught.value.is_final


def test_a_server_that_says_nothing_is_not_waited_for(mail: Mail) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        channel = Smtp(host="127.0.0.1", port=silent.getsockname()[1], to=ANN)
        with pytest.raises(SendError, match="timed out") as caught:
            channel.send(mail, seconds=0.2)
    assert not caught.value.is_final
