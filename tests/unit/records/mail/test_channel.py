"""From an entry of ``notify`` to a channel, with secrets from the environment only."""

from __future__ import annotations

import pytest

from epochal.records.mail.channels import Apprise, Smtp, Webhook
from epochal.records.mail.outbox import (
    SendError,
    build_channel,
    mask_secrets,
    resolve_environment,
    split_recipients,
)

SMTP = {
    "type": "smtp",
    "host": "mx",
    "to": "ann@a.org",
    "user": "ann",
    "password": "${env:PW}",
    "env": ["PW"],
}


def test_every_type_has_its_channel() -> None:
    assert isinstance(build_channel({**SMTP, "kinds": ["failed"]}), Smtp)
    assert isinstance(build_channel({"type": "webhook", "url": "http://a"}), Webhook)
    assert isinstance(build_channel({"type": "apprise", "urls": "json://a"}), Apprise)
    with pytest.raises(SendError, match="there is no channel 'pigeon'"):
        build_channel({"type": "pigeon"})


def test_environment_variables_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "hunter22")
    assert resolve_environment(SMTP) == {**SMTP, "password": "hunter22"}
    spec = {
        "type": "webhook",
        "url": "http://a",
        "headers": {"X": "Bearer ${env:PW}"},
        "env": ["PW"],
    }
    assert resolve_environment(spec)["headers"] == {"X": "Bearer hunter22"}
    assert resolve_environment({"type": "webhook", "url": "a$${b}"})["url"] == "a${b}"


def test_an_unset_variable_is_a_temporary_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PW", raising=False)
    with pytest.raises(SendError, match="environment variable 'PW' is not set") as caught:
        resolve_environment(SMTP)
    assert not caught.value.is_final


def test_errors_do_not_show_values_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "hunter22")
    spec = {"type": "webhook", "url": "http://${env:PW}.org/x", "env": ["PW"]}
    resolved = resolve_environment(spec)
    text = mask_secrets("no http://hunter22.org/x, nor hunter22", spec, resolved)
    assert "hunter22" not in text
    assert mask_secrets("ann at mx", SMTP, resolve_environment(SMTP)) == "ann at mx"


def test_each_recipient_gets_an_entry() -> None:
    assert split_recipients({"type": "smtp", "to": ["a", "b"]}) == [
        {"type": "smtp", "to": "a"},
        {"type": "smtp", "to": "b"},
    ]
    assert split_recipients({"type": "apprise", "urls": ["a"]}) == [
        {"type": "apprise", "urls": "a"}
    ]
    assert split_recipients(SMTP) == [SMTP]
