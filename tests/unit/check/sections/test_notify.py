"""The section ``notify``, checked before anything is sent."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from epochal.check import check
from epochal.config import load

SMTP = {"type": "smtp", "host": "mx.example.org", "to": "ann@example.org"}
LOGIN = {"user": "ann", "password": "${env:PW}"}


@pytest.fixture
def found(check_dict, monkeypatch: pytest.MonkeyPatch):
    """What is wrong with entries: key, what and hint of each problem."""
    monkeypatch.setenv("PW", "hunter22")
    monkeypatch.setenv("HOOK", "https://hooks.example.org/T0/abcDEF1234567890abcd")

    def find(*entries: Any) -> list[tuple[str, str, str]]:
        report = check_dict(env=["PW", "HOOK"], notify=list(entries))
        return [(one.key, one.what, one.hint) for one in report.problems]

    return find


def test_good_channels_are_accepted(found) -> None:
    for entry in (
        SMTP,
        {**SMTP, **LOGIN, "to": ["Ann <ann@example.org>", "bob@example.org"], "port": 2525},
        {**SMTP, **LOGIN, "security": "none", "host": "localhost"},
        {**SMTP, "security": "none"},
        {**SMTP, "kinds": ["failed", "lost"]},
        {"type": "webhook", "url": "http://localhost:8000/hook"},
        {"type": "webhook", "url": "${env:HOOK}"},
        {"type": "webhook", "url": "http://a", "headers": {"Authorization": "Bearer ${env:PW}"}},
        {"type": "webhook", "url": "http://a", "headers": {"X-Room": "lab"}},
        {"type": "apprise", "urls": "${env:HOOK}"},
    ):
        assert found(entry) == []


ENV = "write ${env:NAME}, and NAME into the list `env`"
SECRET = "is a secret, and the record of every run would keep it"


def test_mistakes_are_reported(found) -> None:
    for entry, key, what, hint in (
        ({**SMTP, "user": "ann", "password": "hunter22"}, "password", SECRET, ENV),
        ({**SMTP, "user": "ann"}, "password", "a login needs a user and", "add password: ..."),
        ({**SMTP, "password": "${env:PW}"}, "user", "a login needs a user", "add user: ..."),
        (
            {**SMTP, **LOGIN, "security": "none"},
            "security",
            "the password would be sent unencrypted",
            "write starttls or tls",
        ),
        ({**SMTP, "to": "ann"}, "to", "is not an email address", "write name@example.org"),
        (
            {**SMTP, "to": ["a@b", "bob"]},
            "to.1",
            "is not an email address",
            "write name@example.org",
        ),
        ({**SMTP, "kinds": []}, "kinds", "nothing would be sent", "leave it out for all kinds"),
        ({**SMTP, "kinds": ["faild"]}, "kinds", "expected a list (each 'finished' or", ""),
        ({"type": "smtp", "host": "mx"}, "to", "missing; epochal.records.mail.channels", "add"),
        ({**SMTP, "security": "ssl"}, "security", "expected 'starttls' or 'tls' or 'none'", ""),
        ({"type": "webhook", "url": "ftp://a"}, "url", "is not a web address", "write https"),
        ({"type": "webhook", "url": "http://[a"}, "url", "is not a web address", "write https"),
        ({"type": "webhook", "url": "https://ann:pw@a.org"}, "url", SECRET, ENV),
        (
            {"type": "webhook", "url": "https://hooks.slack.com/services/T0/B0/abcD1234567890efgh"},
            "url",
            SECRET,
            ENV,
        ),
        ({"type": "webhook", "url": "http://a?k=abcD1234567890efgh"}, "url", SECRET, ENV),
        ({"type": "webhook", "url": "http://a?access_token=short"}, "url", SECRET, ENV),
        (
            {"type": "webhook", "url": "http://a", "headers": {"X-Api-Key": "abc"}},
            "headers.X-Api-Key",
            SECRET,
            ENV,
        ),
        ({"type": "apprise", "urls": ["tgram://1/2"]}, "urls.0", SECRET, ENV),
        ({"type": "smpt", "host": "a"}, "type", "unknown channel 'smpt'", "did you mean 'smtp'?"),
        (
            {"type": "user.model.Mlp", "classes": 3},
            "type",
            "'user.model.Mlp' cannot send mail",
            "write smtp, webhook, apprise, or a hook with run_end",
        ),
    ):
        ((where, said, advice),) = found(entry)
        assert where == f"notify.0.{key}"
        assert what in said
        assert advice.startswith(hint)


def test_all_mistakes_are_reported_together(found) -> None:
    problems = found({**SMTP, "to": "ann"}, {"type": "webhook", "url": "x"}, {"type": "smpt"})
    assert {key for key, _, _ in problems} == {"notify.0.to", "notify.1.url", "notify.2.type"}


def test_a_secret_is_not_shown(write_files) -> None:
    text = "notify: [{type: smtp, host: a, to: a@b, user: ann, password: hunter22}]\n"
    report = check(load(write_files({"config.yaml": text}) / "config.yaml"))
    problem = next(one for one in report.problems if one.key == "notify.0.password")
    assert "config.yaml:1:62" in str(problem)
    assert "hunter22" not in str(problem)


def test_apprise_must_be_installed(found, monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(
        "epochal.check.sections.notify.find_spec",
        lambda name: None if name == "apprise" else known(name),
    )
    ((key, what, hint),) = found({"type": "apprise", "urls": "${env:HOOK}"})
    assert (key, what) == ("notify.0.type", "the package apprise is not installed")
    assert hint == "pip install 'epochal[apprise]'"


def test_a_single_entry_must_be_in_a_list(check_dict) -> None:
    (problem,) = check_dict(notify=SMTP).problems
    assert (problem.key, problem.hint) == ("notify", "write notify: [{type: ...}]")
