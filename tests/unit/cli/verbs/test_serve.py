"""``epochal serve``: what it prints, and how it ends."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from comparing import make_run
from epochal.cli.main import main
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
    # Its thread would still run during other tests.
    monkeypatch.setattr("epochal.web.site.launches.Launches.warm_up", lambda self: None)


def test_server_prints_a_link_and_ends_with_ctrl_c(
    epochal: Command, interrupted: None, tmp_path: Path
) -> None:
    done = epochal("serve", "--no-open", "--port", "0", "--runs-dir", str(tmp_path / "runs"))
    assert done.code == 0
    assert re.search(r"open   http://127\.0\.0\.1:\d+/open#[\w-]{43}\n", done.out)
    assert done.out.endswith("stop   with Ctrl-C\nstopped\n")
    assert "other machines" not in done.out
    assert "runs (does not exist yet)\n" in done.out
    assert not (tmp_path / "runs").exists()


def test_other_machines_are_a_choice_with_a_note(
    epochal: Command, interrupted: None, tmp_path: Path
) -> None:
    runs = ("--no-open", "--port", "0", "--runs-dir", str(tmp_path))
    assert "the connection is not encrypted" in epochal("serve", "--lan", *runs).out
    done = epochal("serve", "--host", "0.0.0.0", *runs)
    assert done.code == 78
    assert done.err == "--host: '0.0.0.0' lets other machines connect\n  add --lan to allow that\n"


def test_launching_is_a_choice(
    epochal: Command, interrupted: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def start(command, environment, *, output):
        started.append(command)
        return subprocess.Popen([sys.executable, "-S", "-c", ""])  # ends by itself

    monkeypatch.setattr("epochal.cli.queue_worker.start_child", start)
    runs = ("--no-open", "--port", "0", "--runs-dir", str(tmp_path))
    done = epochal("serve", "--allow-launch", *runs)
    assert "this command runs the queue; when it ends, running jobs save and wait" in done.out
    assert [command[4:7] for command in started] == [["queue", "work", "--wait"]]
    done = epochal("serve", "--allow-launch", "--no-work", *runs)
    assert "`epochal queue work --wait` runs what the page adds to the queue" in done.out
    assert len(started) == 1
    done = epochal("serve", "--allow-launch", "--read-only", *runs)
    assert done.err.startswith("serve: --read-only and --allow-launch contradict each other\n")
    done = epochal("serve", "--no-work", *runs)
    assert done.err.startswith("serve: --no-work has no effect without --allow-launch\n")
    (tmp_path / "file").touch()
    done = epochal("serve", "--no-open", "--runs-dir", str(tmp_path / "file"))
    assert done.err.startswith(f"--runs-dir: '{tmp_path}/file' is no folder\n")


def test_link_is_a_picture_for_phones(epochal: Command, interrupted: None, tmp_path: Path) -> None:
    runs = ("--no-open", "--port", "0", "--runs-dir", str(tmp_path))
    assert "\n\u2588" in epochal("serve", "--lan", *runs).out
    assert "\u2588" not in epochal("serve", *runs).out


def test_the_picture_has_its_own_colours_and_follows_each_use_of_the_link(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Phones do not read inverted codes, as a terminal with a white background would show them."""

    def run(self, sockets=None) -> None:
        sessions = self.config.app.site.sessions
        sessions.open(sessions._code)
        raise KeyboardInterrupt

    monkeypatch.setattr("uvicorn.Server.run", run)
    words = ["serve", "--lan", "--no-open", "--port", "0", "--runs-dir", str(tmp_path)]
    for is_terminal, start in ((True, "\x1b[97;40m\u2588"), (False, "\u2588")):
        monkeypatch.setattr("sys.stdout.isatty", lambda answer=is_terminal: answer)
        assert main(words) == 0
        out = capsys.readouterr().out
        lines = [line for line in out.splitlines() if line.startswith(start)]
        half = len(lines) // 2
        assert half > 10
        assert lines[:half] != lines[half:]
        assert "opened in a browser; for another one:  http://" in out
    monkeypatch.setattr(serve, "can_encode", lambda text: False)
    assert main(words) == 0
    assert "\u2588" not in capsys.readouterr().out


def test_link_leads_to_a_run(epochal: Command, interrupted: None, tmp_path: Path) -> None:
    make_run(tmp_path / "p" / "t" / "20261114-100000-aaaa")
    runs = ("--no-open", "--port", "0", "--runs-dir", str(tmp_path))
    done = epochal("serve", "--run", "last", *runs)
    assert re.search(r"open   http://[^/]+/open/runs/20261114-100000-aaaa#[\w-]{43}\n", done.out)
    assert epochal("serve", "--run", "nothing", *runs).code != 0


def test_a_socket_file_is_private_and_removed(
    epochal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "s", []

    def run(self, sockets=None) -> None:
        seen.append(path.stat().st_mode & 0o777)
        raise KeyboardInterrupt

    monkeypatch.setattr("uvicorn.Server.run", run)
    words = ("serve", "--no-open", "--runs-dir", str(tmp_path / "runs"), "--unix-socket", str(path))
    done = epochal(*words)
    assert done.code == 0
    assert seen == [0o600]
    assert not path.exists()
    assert re.search(rf"tunnel ssh -L 8765:{path} \S+ ", done.out)
    assert "open   http://127.0.0.1:8765/open#" in done.out
    assert "--unix-socket and --lan contradict" in epochal(*words, "--lan").err
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert epochal(*words).code == 0, "the file of a killed server is replaced"
    path.write_text("mine")
    assert epochal(*words).err.startswith("--unix-socket: ")
    assert path.read_text() == "mine"


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
