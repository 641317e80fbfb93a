"""``epochal serve``: what it prints, and how it ends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from epochal.cli.verbs import serve

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that gets Ctrl-C at once."""

    def run(self, sockets=None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("uvicorn.Server.run", run)


def test_server_prints_a_link_and_ends_with_ctrl_c(
    epochal: Command, interrupted: None, tmp_path: Path
) -> None:
    done = epochal("serve", "--no-open", "--port", "0", "--runs-dir", str(tmp_path / "runs"))
    assert done.code == 0
    assert re.search(r"open   http://127\.0\.0\.1:\d+/open#[\w-]{43}\n", done.out)
    assert done.out.endswith("stop   with Ctrl-C\nstopped\n")
    assert "other machines" not in done.out
    assert not (tmp_path / "runs").exists()


def test_other_machines_are_a_choice_with_a_note(
    epochal: Command, interrupted: None, tmp_path: Path
) -> None:
    runs = ("--no-open", "--port", "0", "--runs-dir", str(tmp_path))
    assert "the connection is not encrypted" in epochal("serve", "--lan", *runs).out
    done = epochal("serve", "--host", "0.0.0.0", *runs)
    assert done.code == 78
    assert done.err == "--host: '0.0.0.0' lets other machines connect\n  add --lan to allow that\n"


def test_launching_is_a_choice(epochal: Command, interrupted: None, tmp_path: Path) -> None:
    runs = ("--no-open", "--port", "0", "--runs-dir", str(tmp_path))
    assert "`epochal queue work --wait` runs what" in epochal("serve", "--allow-launch", *runs).out
    done = epochal("serve", "--allow-launch", "--read-only", *runs)
    assert done.err.startswith("serve: --read-only and --allow-launch contradict each other\n")


def test_missing_package_is_named(
    epochal: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    done = epochal("serve", "--runs-dir", str(tmp_path))
    assert done.err == "serve: the page needs uvicorn\n  pip install 'epochal[web]'\n"


def test_browser_gets_the_link_through_a_private_file(
    epochal: Command, interrupted: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Other users can read the arguments of the browser's process."""
    seen = []

    def look(address: str) -> None:
        path = tmp_path / address.removeprefix("file://")
        seen.append((address, path.read_text(), path.parent.stat().st_mode & 0o077))

    monkeypatch.setattr(serve, "_has_browser", lambda: True)
    monkeypatch.setattr("webbrowser.open", look)
    done = epochal("serve", "--port", "0", "--runs-dir", str(tmp_path))
    ((address, page, others),) = seen
    link = re.search(r"http://\S+", done.out)
    assert link
    assert link[0] in page
    assert link[0].partition("#")[2] not in address
    assert others == 0
