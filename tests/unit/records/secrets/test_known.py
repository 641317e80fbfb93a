"""Tests of epochal.records.secrets.process_secrets."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from epochal.records.secrets import redact
from epochal.records.secrets.process_secrets import get_secret_values, hiding_secrets

if TYPE_CHECKING:
    import pytest


def test_secret_looking_variables_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "abcd-efgh-1234")
    monkeypatch.setenv("NUM_TOKENS", "abcd-efgh-5678")
    assert "abcd-efgh-1234" in get_secret_values()
    assert "abcd-efgh-5678" not in get_secret_values()


def test_part_of_where_we_are_is_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "someproject").mkdir()
    monkeypatch.chdir(tmp_path / "someproject")
    monkeypatch.setenv("SOME_PASSWORD", "someproject")
    assert "someproject" not in get_secret_values()


def test_other_threads_hide_the_same_values() -> None:
    found: list[frozenset[str]] = []
    with hiding_secrets(["something secret"]):
        thread = threading.Thread(target=lambda: found.append(get_secret_values()))
        thread.start()
        thread.join()
    assert "something secret" in found[0]


def test_a_known_text_is_found_over_several_lines() -> None:
    for written in [
        "api_key: >\n  Zq7first it's\n  Zq8second\n",
        "api_key: Zq7first it's\n  Zq8second\n",
        "api_key: 'Zq7first it''s\n  Zq8second'\n",
        "+api_key: >\n+  Zq7first it's\n+  Zq8second\n",
        "# Zq7first it's\n# Zq8second\n",
    ]:
        with hiding_secrets(["Zq7first it's Zq8second"]):
            clean = redact(written)
        assert "Zq7" not in clean
        assert "Zq8" not in clean


def test_the_mark_itself_is_no_secret() -> None:
    with hiding_secrets(["redacted", "<redacted>", " redacted "]):
        assert redact("it was redacted: <redacted>") == "it was redacted: <redacted>"
