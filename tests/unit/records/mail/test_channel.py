"""From an entry of ``notify`` to a channel, with secrets from the environment only."""

from __future__ import annotations

import pytest

from epochal.records.mail.apprise import Apprise
from epochal.records.mail.channel import SendError, build_channel, fill_in, hide, split
from epochal.records.mail.smtp import Smtp
from epochal.records.mail.webhook import Webhook

SMTP = {"type": "smtp", "host": "mx", "to": "ann@a.org", "user": "ann", "password": "${env:PW}"}


def test_every_type_has_its_channel() -> None:
    assert isinstance(build_channel({**SMTP, "kinds": ["failed"]}), Smtp)
    assert isinstance(build_channel({"type": "webhook", "url": "http://a"}), Webhook)
    assert isinstance(build_channel({"type": "apprise", "urls": "json://a"}), Apprise)
    with pytest.raises(SendError, match="called 'pigeon'"):
        build_channel({"type": "pigeon"})


def test_secrets_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "hunter22")
    assert fill_in(SMTP) == {**SMTP, "password": "hunter22"}
    spec = {"type": "webhook", "url": "http://a", "headers": {"X": "Bearer ${env:PW}"}}
    assert fill_in(spec)["headers"] == {"X": "Bearer hunter22"}
    assert fill_in({"type": "webhook", "url": "a$${b}"})["url"] == "a${b}"


def test_a_secret_that_is_not_set_here_may_be_set_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PW", raising=False)
    with pytest.raises(SendError, match="environment variable 'PW' is not set") as caught:
        fill_in(SMTP)
    assert not caught.value.is_final


def test_errors_lose_what_came_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "hunter22")
    spec = {"type": "webhook", "url": "http://${env:PW}.org/x"}
    filled = fill_in(spec)
    text = hide("no http://hunter22.org/x, nor hunter22", spec, filled)
    assert "hunter22" not in text
    assert hide("ann at mx", SMTP, fill_in(SMTP)) == "ann at mx"


def test_everybody_gets_a_mail_of_their_own() -> None:
    assert split({"type": "smtp", "to": ["a", "b"]}) == [
        {"type": "smtp", "to": "a"},
        {"type": "smtp", "to": "b"},
    ]
    assert split({"type": "apprise", "urls": ["a"]}) == [{"type": "apprise", "urls": "a"}]
    assert split(SMTP) == [SMTP]
