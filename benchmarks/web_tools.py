"""Servers with a page of runs: Epochal, TensorBoard, MLflow, trackio, with the same curves."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request
import zlib
from abc import ABC, abstractmethod
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from made_runs import make_runs
from web import log_point, serve
from web_browser import Visitor, ending
from web_peers import LIVE_VALUE, METRIC, START, value_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

PEERS = Path(__file__).parents[1] / ".venv-web" / "bin"
RUNS, POINTS = 10, 10_000  # MLflow draws ten runs unless told otherwise
TABLE_RUNS, COLUMNS = 100, 200
START_S = 90


class Tool(ABC):
    """A server and its page. Scripts are functions that the page evaluates."""

    name: str
    is_drawn: str
    """Whether a chart shows so many curves."""

    is_listed = ""
    """Whether the table shows so many runs; empty if there is none."""

    shown: str
    """What changes when the chart shows another point."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def write(self) -> None:
        """Write all runs."""

    @abstractmethod
    def log(self) -> None:
        """Log one more point to each run."""

    @abstractmethod
    def served(
        self, browser: Browser, *, is_table: bool
    ) -> Iterator[tuple[Visitor, str, subprocess.Popen[str]]]:
        """A visitor of the server, the path of the chart or the table, and the process."""


class Epochal(Tool):
    """The page of `epochal serve`: the chart is that of the page Compare."""

    name = "Epochal"
    is_drawn = "(n) => marks.drawn && document.querySelectorAll('article li b').length >= n"
    is_listed = (
        "(n) => document.querySelectorAll('.body [role=row] a').length > 10 &&"
        " document.querySelector('.total').textContent.startsWith(n.toLocaleString('en'))"
    )
    shown = (
        "() => [...document.querySelectorAll('article li b')].map((one) => one.textContent).join()"
    )

    def write(self) -> None:
        """Folders with the files of real runs."""
        make_runs(self.folder / "many", TABLE_RUNS, columns=COLUMNS)
        make_runs(self.folder / "curves", RUNS)
        for run, folder in enumerate(find_runs(self.folder / "curves").values()):
            rows = bytearray()
            for step in range(POINTS):
                head = struct.pack("<IIqdd", 1, 0, step, START + step, value_at(run, step))
                rows += head + struct.pack("<I", zlib.crc32(head))
            (folder / "metrics.bin").write_bytes(rows)

    def log(self) -> None:
        """As a training does."""
        for folder in find_runs(self.folder / "curves").values():
            log_point(folder, POINTS, LIVE_VALUE)

    @contextmanager
    def served(
        self, browser: Browser, *, is_table: bool
    ) -> Iterator[tuple[Visitor, str, subprocess.Popen[str]]]:
        """One server for each."""
        root = self.folder / ("many" if is_table else "curves")
        with serve_own(browser, root) as (visitor, process):
            yield visitor, "/#/runs" if is_table else compare_path(root), process


@contextmanager
def serve_own(browser: Browser, root: Path) -> Iterator[tuple[Visitor, subprocess.Popen[str]]]:
    """A server of run folders, and a visitor who signed in."""
    process, link = serve(root)
    with ending(process):
        context = browser.new_context()
        page = context.new_page()
        page.goto(link)
        page.get_by_role("link", name="Runs", exact=True).wait_for()
        cookies = context.storage_state()
        context.close()
        yield Visitor(browser, link.partition("/open#")[0], cookies=cookies), process


def find_runs(root: Path) -> dict[str, Path]:
    """The folders of all runs by id."""
    return {path.parent.name: path.parent for path in sorted(root.glob("*/*/*/run.json"))}


def compare_path(root: Path, count: int | None = None) -> str:
    """The address of the curves of some runs."""
    return "/#/compare?" + "&".join(f"run={one}" for one in list(find_runs(root))[:count])


class Peer(Tool):
    """A tool in an environment of its own; a process of that writes its runs."""

    chart_path: str
    table_path = ""
    settings = ""
    """A script that runs before the page."""

    sizes = (RUNS, POINTS, TABLE_RUNS, COLUMNS)

    def write(self) -> None:
        """Start the writer, which then waits."""
        script = Path(__file__).with_name("web_peers.py")
        words = [PEERS / "python", script, self.name, self.folder, *map(str, self.sizes)]
        self._writer = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._read("ready")

    def log(self) -> None:
        """Let the writer log, and wait until it has."""
        assert self._writer.stdin is not None
        self._writer.stdin.write("\n")
        self._writer.stdin.flush()
        self._read("logged")

    def _read(self, word: str) -> None:
        assert self._writer.stdout is not None
        line = self._writer.stdout.readline()
        if not line.startswith(word):
            raise RuntimeError(f"the writer of {self.name} failed")

    @abstractmethod
    def command(self, port: int) -> list[object]:
        """The words that start the server."""

    @contextmanager
    def served(
        self, browser: Browser, *, is_table: bool
    ) -> Iterator[tuple[Visitor, str, subprocess.Popen[str]]]:
        """One server for both."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        own = {"TRACKIO_DIR": str(self.folder), "GRADIO_SERVER_PORT": str(port), "BROWSER": "true"}
        process = subprocess.Popen(
            [str(word) for word in self.command(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | own,
            cwd=self.folder,
        )
        with ending(process):
            address = f"http://127.0.0.1:{port}"
            wait_for_server(address)
            path = self.table_path if is_table else self.chart_path
            yield Visitor(browser, address, script=self.settings), path, process


def wait_for_server(address: str) -> None:
    """Wait until a server answers."""
    end = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10):
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


class TensorBoard(Peer):
    """Its time series; a list of names, but no table of runs."""

    name = "TensorBoard"
    chart_path = "/"
    is_drawn = (
        "(n) => document.querySelector('scalar-card canvas')"
        " && document.querySelectorAll('scalar-card tb-data-table-content-row').length >= n"
    )
    shown = "() => document.querySelector('scalar-card')?.textContent"
    settings = """localStorage.setItem('_tb_global_settings', '{"autoReload":true}');"""

    def command(self, port: int) -> list[object]:
        """It reads files every second."""
        place = ("--logdir", self.folder, "--port", port)
        return [PEERS / "tensorboard", *place, "--reload_interval", 1]


class LongTensorBoard(TensorBoard):
    """The long curves of the goals: one file of events, which all runs share."""

    def __init__(self, folder: Path, runs: int, points: int) -> None:
        super().__init__(folder)
        self.runs, self.sizes = runs, (1, points, 0, 0)

    def write(self) -> None:
        """Write one run, and link its file."""
        super().write()
        (file,) = (self.folder / "run00").iterdir()
        for run in range(1, self.runs):
            (self.folder / f"run{run:02}").mkdir()
            os.link(file, self.folder / f"run{run:02}" / file.name)


class MLflow(Peer):
    """Two experiments in a SQLite database, one worker."""

    name = "MLflow"
    chart_path = "/#/experiments/1/runs?compareRunsMode=CHART"
    table_path = "/#/experiments/2/runs"
    is_drawn = (
        "(n) => document.querySelector('.js-plotly-plot .xtick')"
        f" && document.body.innerText.split('({METRIC})').length > n"
    )
    is_listed = "(n) => (document.body.innerText.match(/run\\d{3}/g) ?? []).length > 10"
    shown = "() => document.querySelector('.js-plotly-plot')?.textContent"

    def command(self, port: int) -> list[object]:
        """As its documentation starts it."""
        store = ("--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db")
        return [PEERS / "mlflow", "server", "--workers", 1, "--port", port, *store]


class Trackio(Peer):
    """Two projects."""

    name = "trackio"
    chart_path = "/?project=curves"
    table_path = "/runs?project=many"
    is_drawn = "(n) => document.querySelector('canvas.marks')"
    is_listed = "(n) => document.querySelectorAll('tbody tr').length >= n"
    shown = "() => document.querySelector('canvas.marks')?.toDataURL()"

    def command(self, port: int) -> list[object]:
        """Its port comes from the environment."""
        return [PEERS / "trackio", "show"]


TOOLS: tuple[type[Tool], ...] = (Epochal, TensorBoard, MLflow, Trackio)
