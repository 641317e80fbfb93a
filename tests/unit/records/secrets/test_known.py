"""Tests of epochal.records.secrets.known."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from epochal.records.secrets.known import hiding, known_values

if TYPE_CHECKING:
    import pytest


def test_secret_looking_variables_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "abcd-efgh-1234")
    monkeypatch.setenv("NUM_TOKENS", "abcd-efgh-5678")
    assert "abcd-efgh-1234" in known_values()
    assert "abcd-efgh-5678" not in known_values()


def test_part_of_where_we_are_is_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "someproject").mkdir()
    monkeypatch.chdir(tmp_path / "someproject")
    monkeypatch.setenv("SOME_PASSWORD", "someproject")
    assert "someproject" not in known_values()


def test_other_threads_hide_the_same_values() -> None:
    found: list[frozenset[str]] = []
    with hiding(["something secret"]):
        thread = threading.Thread(target=lambda: found.append(known_values()))
        thread.start()
        thread.join()
    assert "something secret" in found[0]
