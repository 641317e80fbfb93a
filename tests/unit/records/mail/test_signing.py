"""The key that signs mail and jobs: private to one user, made once, refused if wrong."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest

from epochal.records.mail import signing
from epochal.records.mail.outbox import queue_mail, read_outbox
from epochal.records.mail.signing import (
    KeyUnusableError,
    check_key,
    find_key_path,
    is_signed,
    write_signed,
)
from mail_servers import http_server

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.mail.mailbox import Mail, Mailbox


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.mark.usefixtures("home")
def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    write_signed(tmp_path / "a.json", {"value": [1.0, float("nan"), "ü\ud800"]})
    key = find_key_path().read_bytes()
    assert stat.S_IMODE(find_key_path().stat().st_mode) == 0o600
    write_signed(tmp_path / "b.json", {})
    assert find_key_path().read_bytes() == key
    assert [path.name for path in find_key_path().parent.iterdir()] == ["signing.key"]
    values = json.loads((tmp_path / "a.json").read_text())
    assert is_signed(tmp_path / "a.json", values)
    assert not is_signed(tmp_path / "b.json", values)
    assert not is_signed(tmp_path / "a.json", {**values, "more": 1})


def test_the_key_is_in_the_home_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_key_path() == tmp_path / ".config" / "epochal" / "signing.key"


def test_the_key_of_an_earlier_version_is_taken_over(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_signed(tmp_path / "a.json", {"value": 1})
    values = json.loads((tmp_path / "a.json").read_text())
    path = find_key_path().rename(home / "epochal" / "mail.key")
    with monkeypatch.context() as patch:  # a file system without hard links
        patch.setattr(type(path), "hardlink_to", lambda *_: os.link("", ""))
        assert find_key_path() == path
        assert is_signed(tmp_path / "a.json", values)
    assert find_key_path() == home / "epochal" / "signing.key"
    assert path.samefile(find_key_path())
    assert is_signed(tmp_path / "a.json", values)


@pytest.mark.usefixtures("home")
def test_a_process_that_loses_the_race_uses_the_key_of_the_other(
    tmp_path: Path,
) -> None:
    write_signed(tmp_path / "a.json", {})
    first = find_key_path().read_bytes()
    signing._create_key(find_key_path())
    assert find_key_path().read_bytes() == first


def test_an_unusable_key_signs_nothing_and_verifies_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a.json"
    write_signed(place, {"value": 1})
    values, path = json.loads(place.read_text()), find_key_path()
    key = path.read_bytes()

    def restore() -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(key)
        path.chmod(0o600)

    def link() -> None:
        path.rename(tmp_path / "moved")
        path.symlink_to(tmp_path / "moved")

    cases = {
        "other users may read it": lambda: path.chmod(0o640),
        "is damaged": lambda: path.write_bytes(key[:-1]),
        "is a link and not a regular file": link,
        "is a named pipe and not a regular file": lambda: (path.unlink(), os.mkfifo(path)),
    }
    for what, spoil in cases.items():
        restore()
        assert is_signed(place, values), what
        spoil()
        assert not is_signed(place, values), what
        for use in (check_key, lambda: write_signed(place, {"value": 2})):
            with pytest.raises(KeyUnusableError, match=what):
                use()
    restore()
    monkeypatch.setattr(signing.os, "geteuid", lambda: 12345)
    assert not is_signed(place, values)
    with pytest.raises(KeyUnusableError, match="belongs to another user"):
        check_key()


def test_a_missing_key_verifies_nothing(home: Path, tmp_path: Path) -> None:
    write_signed(tmp_path / "a.json", {"value": 1})
    values = json.loads((tmp_path / "a.json").read_text())
    find_key_path().unlink()
    assert not is_signed(tmp_path / "a.json", values)
    check_key()
    assert not find_key_path().exists()  # reading makes none
    write_signed(tmp_path / "b.json", {})
    assert not is_signed(tmp_path / "a.json", values)  # signed by another key


def test_a_process_sends_its_own_mail_whatever_happened_to_the_file(
    home: Path, box: Mailbox, mail: Mail
) -> None:
    with http_server() as hook, http_server() as other:
        specs = [{"type": "webhook", "url": hook.url}] * 2
        lost_key, changed = queue_mail(mail, specs, box)
        assert changed.path is not None
        values = json.loads(changed.path.read_text())
        values["notify"]["url"] = other.url
        changed.path.write_text(json.dumps(values))
        assert changed.send_alone() is None
        find_key_path().unlink()
        assert lost_key.send_alone() is None
    assert (len(hook.bodies), other.bodies) == (2, [])


def test_without_a_home_a_process_sends_its_own_mail_and_leaves_none(
    box: Mailbox, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null")
    with http_server(500) as hook:
        (delivery,) = queue_mail(mail, [{"type": "webhook", "url": hook.url}], box)
        assert delivery.path is None
        assert delivery.send_alone() is not None
        assert delivery.send_alone() is None
    assert len(hook.bodies) == 2
    assert read_outbox(box) == []
    assert box.count_outbox() == 0
