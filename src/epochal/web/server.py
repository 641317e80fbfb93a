"""Starts the server: addresses, the names it answers under, and the links it prints."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal.errors import ConfigError, Problem
from epochal.records.query.query_runs import locate
from epochal.web.app import WebApp
from epochal.web.checks import LOOPBACK
from epochal.web.site.run_index import RunIndex
from epochal.web.site.session_file import SessionFile
from epochal.web.site.sessions import WebSessions
from epochal.web.site.site import Site
from epochal.web.site.static_files import StaticFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import uvicorn

    from epochal.web.site.launches import Launches
    from epochal.web.site.route import Capability
    from epochal.web.site.site import QueueWorker, SweepReader

DEFAULT_PORT = 8765
_MAX_TRIES = 20
_BACKLOG = 128
_ANY = "0.0.0.0"
_OUTSIDE = "192.0.2.1"  # reserved for documentation: any address outside would do
_MAX_HEADER_BYTES = 32 * 1024
_MAX_CONNECTIONS = 256
_SHUTDOWN_SECONDS = 1
_LOGGER = "uvicorn.error"
_IDLE_SECONDS = 5
"""How often connections are looked at; one that waits for a request twice in a row is closed."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ServeOptions:
    """Where to listen, and what sessions may do."""

    host: str | None = None
    """An address of this machine; by default only this machine can connect."""

    port: int | None = None
    """By default the first free one."""

    is_lan: bool = False
    """Whether other machines may connect."""

    unix_socket: Path | None = None
    """A socket file that only this user can open, instead of a port."""

    is_read_only: bool = False
    allows_launch: bool = False
    signs_out: bool = False
    """Whether the browsers that opened this address before must open the new link."""

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """What every session may do."""
        if self.is_read_only:
            return ("read",)
        return ("read", "edit", "launch") if self.allows_launch else ("read", "edit")


@final
class WebServer:
    """A bound server that has not started yet.

    Args:
        runs_dir: The folder of the runs.
        options: Where to listen.
        project: The name of the project.
        version: The version of Epochal.
        launches: The experiments that may be launched, if the options allow it.
        sweeps: Reads the sweeps beside the runs.
        worker: Runs the jobs of the queue.
        start: Where the link leads, such as ``/run/ID``.
        on_link: Receives the link that opens the page, and a new one after each use.
    """

    def __init__(
        self,
        runs_dir: Path,
        options: ServeOptions,
        *,
        project: str = "",
        version: str = "",
        launches: Launches | None = None,
        sweeps: SweepReader | None = None,
        worker: QueueWorker | None = None,
        start: str = "",
        on_link: Callable[[str], None] = lambda link: None,
    ) -> None:
        import uvicorn

        self._unix_socket = options.unix_socket
        if options.unix_socket is not None:
            self.socket = bind_unix(options.unix_socket)
            host, port = LOOPBACK[0], options.port or DEFAULT_PORT  # of the tunnel to it
        else:
            self.socket = bind(options)
            host, port = self.socket.getsockname()[:2]
        names = find_names(host)
        self.address = f"http://{names[0]}:{port}"
        root, below = locate(runs_dir)
        self.index = RunIndex(root, below)
        place = f"{host}:{port}" if self._unix_socket is None else self._unix_socket.absolute()
        kept = SessionFile(runs_dir, str(place))
        if options.signs_out:
            kept.write({})
        self.site = Site(
            index=self.index,
            sessions=WebSessions(
                options.capabilities,
                lambda code: on_link(f"{self.address}/open{start}#{code}"),
                file=kept,
            ),
            static=StaticFiles(),
            hosts=frozenset(f"{name}:{port}" for name in (*names, *LOOPBACK)),
            port=port,
            launches=launches if options.allows_launch else None,
            sweeps=sweeps,
            worker=worker,
            project=project,
            version=version,
        )
        self._waiting: dict[Any, object] = {}
        """The connections without a request, each with its last one."""

        app = WebApp(self.site)
        settings = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            http="h11",
            log_level="warning",
            access_log=False,  # addresses may show what a user reads
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
            limit_concurrency=_MAX_CONNECTIONS,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            callback_notify=self._close_idle,
            timeout_notify=_IDLE_SECONDS,
        )
        self.uvicorn = _make_server(app, settings)

    async def _close_idle(self) -> None:
        """Close connections that send their request too slowly, or never."""
        found: set[Any] = {*self.uvicorn.server_state.connections}
        waiting = {
            one: one.cycle for one in found if one.cycle is None or one.cycle.response_complete
        }
        for one, last in waiting.items():
            if one in self._waiting and self._waiting[one] is last:
                one.transport.close()
        self._waiting = waiting

    def run(self) -> None:
        """Serve until Ctrl-C."""
        threading.Thread(target=_import_curves, daemon=True).start()
        try:
            self.uvicorn.run(sockets=[self.socket])
        finally:
            logging.getLogger(_LOGGER).disabled = False
            self.index.close()
            self.close()

    def close(self) -> None:
        """Listen no more."""
        self.socket.close()
        if self._unix_socket is not None:
            self._unix_socket.unlink(missing_ok=True)


def _make_server(app: WebApp, settings: uvicorn.Config) -> uvicorn.Server:
    """A server that does not wait for open pages when it ends."""
    import uvicorn

    class Server(uvicorn.Server):
        @override
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.end_streams()
            logging.getLogger(_LOGGER).disabled = True  # it would log answers that are cut off
            await super().shutdown(sockets)

    return Server(settings)


def _import_curves() -> None:
    """Import numpy for the first chart, while the browser still opens."""
    import epochal.records.metrics.curve_cache  # noqa: F401


def bind(options: ServeOptions) -> socket.socket:
    """The socket to listen on; ConfigError if the address is not allowed or not free."""
    host = options.host or (_ANY if options.is_lan else LOOPBACK[0])
    if not options.is_lan and host not in (LOOPBACK[0], "localhost", "::1"):
        what = f"{host!r} lets other machines connect"
        raise ConfigError(Problem("--host", what, hint="add --lan to allow that"))
    first = DEFAULT_PORT if options.port is None else options.port
    if not 0 <= first < 2**16:
        raise ConfigError(Problem("--port", f"must be from 0 to 65535, got {first}"))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last = min(first + _MAX_TRIES, 2**16) if options.port is None else first + 1
    for port in range(first, last):
        # asyncio sends small answers at once only if it knows that the protocol is TCP.
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, port))
            found.listen(_BACKLOG)
        except OSError as error:
            found.close()
            is_used = error.errno in (errno.EADDRINUSE, errno.EACCES)
            if is_used and port + 1 < last:
                continue
            what = f"cannot listen on {host}:{port}: {(error.strerror or '').lower()}"
            raise ConfigError(
                Problem("--port", what, hint="choose another with --port N")
            ) from None
        else:
            return found
    raise AssertionError("no port was tried")


def bind_unix(path: Path) -> socket.socket:
    """A socket file with mode 0600; ConfigError if something else is at its place."""
    key = "--unix-socket"
    if path.is_socket() and _is_dead(path):
        path.unlink()
    if os.path.lexists(path):
        raise ConfigError(Problem(key, f"{str(path)!r} exists", hint="choose another path"))
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # the file must never be open to others, not even for a moment
    try:
        found.bind(str(path))
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        what = f"cannot listen on {str(path)!r}: {(error.strerror or str(error)).lower()}"
        raise ConfigError(Problem(key, what, hint="choose a short path in your home")) from None
    finally:
        os.umask(before)
    return found


def _is_dead(path: Path) -> bool:
    """Whether the server of a socket file was killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        try:
            trial.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def _find_outside_address() -> str:
    """The address of this machine in the network that leads outside; empty without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        try:
            trial.connect((_OUTSIDE, 9))  # chooses a route, and sends nothing
            return str(trial.getsockname()[0])
        except OSError:
            return ""


def find_names(host: str) -> list[str]:
    """The names under which a server that listens on ``host`` may be called, best first."""
    if host in ("127.0.0.1", "::1"):
        return ["127.0.0.1" if host == "127.0.0.1" else "[::1]"]
    if host not in (_ANY, "::"):
        return [f"[{host}]" if ":" in host else host]
    import psutil

    addresses = [
        one.address
        for several in psutil.net_if_addrs().values()
        for one in several
        if one.family == socket.AF_INET and not one.address.startswith("127.")
    ]
    name = socket.gethostname().lower()
    outside = _find_outside_address()
    addresses.sort(key=lambda one: one != outside)  # before bridges of containers and such
    return [*addresses, name, f"{name.partition('.')[0]}.local"]
