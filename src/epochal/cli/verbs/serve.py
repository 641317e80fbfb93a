"""``epochal serve``: shows the runs in a browser, on this machine only by default."""

from __future__ import annotations

import os
import sys
import tempfile
import webbrowser
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from epochal import durable
from epochal.cli.arguments import add_runs_dir_option
from epochal.cli.draw.progress import Progress
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import add_options
from epochal.records.index import Index
from epochal.records.query.ask import is_root, locate
from epochal.registry.project_file import read_project_file
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control

if TYPE_CHECKING:
    import argparse

    from epochal.web.launching import Launches

_REDIRECT = (
    '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
    '<meta http-equiv="refresh" content="0; url={}"><title>Epochal</title>\n'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    texts = {
        "--port N": "port to listen on (default: the first free one from 8765)",
        "--host ADDRESS": "address to listen on (default: 127.0.0.1)",
        "--lan": "let other machines of the network connect; the connection is not encrypted",
        "--allow-launch": "let the page add experiments to the queue, and stop runs",
        "--read-only": "show runs, but change and delete nothing",
        "--no-open": "do not open a browser",
    }
    add_options(parser, texts)
    add_runs_dir_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if find_spec("uvicorn") is None:
        what, hint = "the page needs uvicorn", "pip install 'epochal[web]'"
        raise ConfigError(Problem("serve", what, hint=hint))
    from epochal.cli.sweep_reader import FolderSweepReader
    from epochal.web.server import ServeOptions, WebServer

    if args.read_only and args.allow_launch:
        what = "--read-only and --allow-launch contradict each other"
        raise ConfigError(Problem("serve", what, hint="leave out one of them"))
    options = ServeOptions(
        host=args.host,
        port=args.port,
        is_lan=args.lan,
        is_read_only=args.read_only,
        allows_launch=args.allow_launch,
    )
    launches = _find_launches(args.runs_dir) if args.allow_launch else None
    links: list[str] = []

    def show(link: str) -> None:
        links.append(link)
        if len(links) > 1:
            print(f"opened in a browser; for another one:  {link}", flush=True)

    _read_runs(args.runs_dir)
    project = read_project_file(Path.cwd())
    name = project.name if project is not None else ""
    server = WebServer(
        args.runs_dir,
        options,
        project=name,
        version=_version(),
        launches=launches,
        sweeps=FolderSweepReader(locate(args.runs_dir)[0]),
        on_link=show,
    )
    print(escape_control(f"folder {args.runs_dir}"))
    print(f"open   {links[0]}\n       (it works once; after that, another link is printed)")
    if args.lan:
        print("note   other machines can connect, and the connection is not encrypted")
    if args.allow_launch:
        print(
            f"note   `{epochal_command()} queue work --wait` runs what the page adds to the queue"
        )
    print("stop   with Ctrl-C", flush=True)
    with tempfile.TemporaryDirectory(prefix="epochal-serve-") as folder:
        if not args.no_open and _has_browser():
            _open_browser(links[0], Path(folder))
        with suppress(KeyboardInterrupt):
            server.run()
    print("stopped")
    return 0


def _read_runs(runs_dir: Path) -> None:
    """Read all runs once, which takes a minute for very many; the server then reads changes."""
    root, _ = locate(runs_dir)
    with Index.open(root, is_kept=is_root(root)) as index, Progress() as progress:
        index.refresh(progress)


def _find_launches(runs_dir: Path) -> Launches:
    from epochal.cli.launcher import QueueLauncher
    from epochal.web.launching import Launches

    root, _ = locate(runs_dir)
    return Launches(Path.cwd(), root, QueueLauncher(root))


def _has_browser() -> bool:
    """Whether this terminal has a screen; a text browser would take the terminal over."""
    has_screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return sys.stdout.isatty() and has_screen and not os.environ.get("SSH_CONNECTION")


def _open_browser(link: str, folder: Path) -> None:
    """Open the link through a private file: other users can read the arguments of processes."""
    page = folder / "open.html"
    durable.write_text(page, _REDIRECT.format(link))
    webbrowser.open(page.as_uri())


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("epochal")
    except PackageNotFoundError:
        return ""
