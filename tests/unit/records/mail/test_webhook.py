"""Mail to a real endpoint of the web: taken, refused, moved, silent."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from epochal.records.mail.channel import SendError
from epochal.records.mail.webhook import Webhook
from mail_servers import http_server

if TYPE_CHECKING:
    from epochal.records.mail import Mail


def test_the_mail_is_posted_as_json(mail: Mail) -> None:
    with http_server() as hook:
        Webhook(url=hook.url, headers={"Authorization": "Bearer abc"}).send(mail, seconds=10)
    ((method, path, headers),) = hook.requests
    assert (method, path) == ("POST", "/hook")
    assert headers["Authorization"] == "Bearer abc"
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    body = json.loads(hook.bodies[0])
    assert body == mail.to_json()
    assert (body["kind"], body["level"], body["facts"]["best"]) == ("failed", "error", 0.91234)


@pytest.mark.parametrize(
    ("code", "is_final"),
    [(500, False), (503, False), (429, False), (408, False), (400, True), (401, True), (404, True)],
)
def test_the_answer_says_whether_to_come_back(mail: Mail, code: int, is_final: bool) -> None:
    with http_server(code) as hook, pytest.raises(SendError, match=f"127.0.0.1 said {code}") as no:
        Webhook(url=hook.url).send(mail, seconds=10)
    assert no.value.is_final is is_final
    assert "so" in str(no.value)  # what the server had to say


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(mail: Mail, code: int) -> None:
    with (
        http_server() as other,
        http_server(code, location=f"{other.url}?token=abc") as hook,
        pytest.raises(SendError, match=rf"sends elsewhere \({code}, to 127.0.0.1\)") as caught,
    ):
        Webhook(url=hook.url, headers={"Authorization": "Bearer abc"}).send(mail, seconds=10)
    assert caught.value.is_final
    assert not other.requests
    assert "abc" not in str(caught.value)


def test_an_endpoint_that_never_answers_is_not_waited_for(mail: Mail) -> None:
    with http_server(0) as hook, pytest.raises(SendError, match="timed out") as caught:
        Webhook(url=hook.url).send(mail, seconds=0.2)
    assert not caught.value.is_final


def test_an_endpoint_that_is_not_there_may_come_back(mail: Mail) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(SendError, match="refused") as caught:
        Webhook(url=f"http://127.0.0.1:{port}/x").send(mail, seconds=5)
    assert not caught.value.is_final


def test_an_answer_that_is_no_http_may_be_another_one_next_time(mail: Mail) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        import threading

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


def test_only_the_web_is_written_to(mail: Mail) -> None:
    with pytest.raises(SendError, match="is not of the web"):
        Webhook(url="file:///etc/passwd").send(mail, seconds=1)
