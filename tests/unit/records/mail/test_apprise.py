"""Mail through Apprise, to a real endpoint."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from epochal.records.mail.apprise import Apprise
from epochal.records.mail.channel import SendError
from mail_servers import http_server

if TYPE_CHECKING:
    from epochal.records.mail import Mail

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


def address(url: str) -> str:
    return url.replace("http://", "json://")


def test_a_mail_is_sent_by_an_address_of_apprise(mail: Mail) -> None:
    with http_server() as hook:
        Apprise(urls=address(hook.url)).send(mail, seconds=10)
    body = json.loads(hook.bodies[0])
    assert body["title"] == mail.subject
    assert "ValueError: schöne Formen" in body["message"]
    assert body["type"] == "failure"


def test_a_refusal_says_what_apprise_says(mail: Mail) -> None:
    with http_server(500) as hook, pytest.raises(SendError, match="error=500"):
        Apprise(urls=[address(hook.url)]).send(mail, seconds=10)


def test_an_unknown_address_is_not_repeated(mail: Mail) -> None:
    with pytest.raises(SendError, match="none that Apprise knows") as caught:
        Apprise(urls="pigeon://secret-loft").send(mail, seconds=1)
    assert caught.value.is_final
    assert "secret-loft" not in str(caught.value)


def test_without_the_package_it_says_how_to_get_it(
    mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(SendError, match=r"pip install 'epochal\[apprise\]'"):
        Apprise(urls="json://localhost").send(mail, seconds=1)
