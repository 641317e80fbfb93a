"""``epochal serve``: shows the runs in a browser, on this machine only by default."""

from __future__ import annotations

import io
import os
import shlex
import sys
import tempfile
import webbrowser
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from epochal import durable
from epochal.cli.arguments import add_runs_dir_option
from epochal.cli.draw.progress import Progress
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import add_options
from epochal.records.find import read_run
from epochal.records.index import Index
from epochal.records.layout.process import host_name
from epochal.records.query.query_runs import is_root, locate
from epochal.registry.project_file import read_project_file
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control
from epochal.text.terminal import can_encode

if TYPE_CHECKING:
    import argparse

    from epochal.web.site.launches import Launches

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
        "--unix-socket FILE": "listen on a socket file that only you can open, instead of a port",
        "--allow-launch": "let the page start, stop and resume runs of this project",
        "--no-work": "with --allow-launch: leave the queue to `epochal queue work`",
        "--read-only": "show runs, but change and delete nothing",
        "--sign-out": "sign out the browsers that opened this address before",
        "--run RUN": "open the page of this run",
        "--no-open": "do not open a browser",
    }
    add_options(parser, texts)
    add_runs_dir_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if find_spec("uvicorn") is None:
        what, hint = "the page needs uvicorn", "pip install 'epochal[web]'"
        raise ConfigError(Problem("serve", what, hint=hint))
    from epochal.cli.queue_worker import ChildWorker
    from epochal.cli.sweep_reader import FolderSweepReader
    from epochal.web.server import ServeOptions, WebServer

    _refuse_mistakes(args)
    start = "" if args.run is None else f"/runs/{read_run(args.run, args.runs_dir).path.name}"
    options = ServeOptions(
        host=args.host,
        port=args.port,
        is_lan=args.lan,
        unix_socket=args.unix_socket,
        is_read_only=args.read_only,
        allows_launch=args.allow_launch,
        signs_out=args.sign_out,
    )
    launches = _find_launches(args.runs_dir) if args.allow_launch else None
    links: list[str] = []

    def show(link: str) -> None:
        links.append(link)
        if len(links) > 1:
            print(f"opened in a browser; for another one:  {link}", flush=True)
            if args.lan:
                _print_code(link)

    _read_runs(args.runs_dir)
    project = read_project_file(Path.cwd())
    name = project.name if project is not None else ""
    root, _ = locate(args.runs_dir)
    worker = ChildWorker(root) if args.allow_launch and not args.no_work else None
    try:
        server = WebServer(
            args.runs_dir,
            options,
            project=name,
            version=_version(),
            launches=launches,
            sweeps=FolderSweepReader(root),
            worker=worker,
            start=start,
            on_link=show,
        )
        _print_start(args, links[0])
        with tempfile.TemporaryDirectory(prefix="epochal-serve-") as folder:
            if not args.no_open and _has_browser():
                _open_browser(links[0], Path(folder))
            if launches is not None:
                Thread(target=launches.warm_up, name="epochal-warm-up", daemon=True).start()
            with suppress(KeyboardInterrupt):
                server.run()
    finally:
        if worker is not None:
            worker.stop()
    print("stopped")
    return 0


def _refuse_mistakes(args: argparse.Namespace) -> None:
    pairs = (
        ("--read-only", args.read_only, "--allow-launch", args.allow_launch),
        ("--unix-socket", args.unix_socket is not None, "--lan", args.lan),
        ("--unix-socket", args.unix_socket is not None, "--host", args.host is not None),
    )
    for one, has_one, other, has_other in pairs:
        if has_one and has_other:
            what = f"{one} and {other} contradict each other"
            raise ConfigError(Problem("serve", what, hint="leave out one of them"))
    if args.runs_dir.exists() and not args.runs_dir.is_dir():
        what = f"{str(args.runs_dir)!r} is no folder"
        raise ConfigError(Problem("--runs-dir", what, hint="give the folder of the runs"))
    if args.no_work and not args.allow_launch:
        what = "--no-work has no effect without --allow-launch"
        raise ConfigError(Problem("serve", what, hint="add --allow-launch, or leave it out"))


def _print_start(args: argparse.Namespace, link: str) -> None:
    missing = "" if args.runs_dir.is_dir() else " (does not exist yet)"
    print(escape_control(f"folder {args.runs_dir}{missing}"))
    if args.unix_socket is not None:
        port = link.rpartition(":")[2].partition("/")[0]
        path = shlex.quote(str(args.unix_socket.absolute()))
        print(escape_control(f"tunnel ssh -L {port}:{path} {host_name()}   (on your machine)"))
    print(f"open   {link}\n       (it works once; after that, another link is printed)")
    if args.lan:
        _print_code(link)
        print("note   other machines can connect, and the connection is not encrypted")
    if args.allow_launch and args.no_work:
        work = f"{epochal_command()} queue work --wait"
        print(f"note   `{work}` runs what the page adds to the queue")
    elif args.allow_launch:
        print("note   this command runs the queue; when it ends, running jobs save and wait")
    print("stop   with Ctrl-C", flush=True)


def _print_code(link: str) -> None:
    """Print the link as a QR code, for phones."""
    if find_spec("segno") is None:
        print("note   pip install 'epochal[web]' prints the link as a QR code, too")
        return
    if not can_encode("\u2580\u2584\u2588"):
        return
    import segno

    drawn = io.StringIO()
    segno.make_qr(link, error="l").terminal(drawn, compact=True, border=2)
    for line in drawn.getvalue().splitlines():
        # White on black in any terminal: most phones do not read inverted codes.
        print(f"\x1b[97;40m{line}\x1b[0m" if sys.stdout.isatty() else line, flush=True)


def _read_runs(runs_dir: Path) -> None:
    """Read all runs once, which takes a minute for very many; the server then reads changes."""
    root, _ = locate(runs_dir)
    with Index.open(root, is_kept=is_root(root)) as index, Progress() as progress:
        index.refresh(progress)


def _find_launches(runs_dir: Path) -> Launches:
    from epochal.cli.launcher import QueueLauncher
    from epochal.web.site.launches import Launches

    root, _ = locate(runs_dir)
    return Launches(Path.cwd(), root, QueueLauncher(root))


def _has_browser() -> bool:
    """Whether this machine has a graphical browser; a text browser would block the terminal."""
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
