"""Pages in a real Chromium: when a frame shows something, and what was received until then."""

from __future__ import annotations

import gzip
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from browser.chromium import find_chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page, StorageState

PATIENCE_S = 60

# Notes when the last click or input was, and the frames after the first and the last line that was
# drawn on a canvas since.
_WATCH = """
window.marks = {begin: 0, first: 0, drawn: 0};
for (const name of ["click", "input", "mouseup"])
  addEventListener(name, (event) => { marks.begin = event.timeStamp; marks.first = 0; }, true);
const stroke = CanvasRenderingContext2D.prototype.stroke;
let isNoted = false;
CanvasRenderingContext2D.prototype.stroke = function (...words) {
  if (!isNoted) {
    isNoted = true;
    requestAnimationFrame(() => {
      isNoted = false;
      marks.drawn = performance.now();
      marks.first ||= marks.drawn;
    });
  }
  return stroke.apply(this, words);
};
"""


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """A Chromium without a window."""
    path, environment = find_chromium()
    options = ["--no-sandbox", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options, env=environment)
        yield browser
        browser.close()


class Visitor:
    """Opens pages of a server, each as on a first visit, with nothing in the browser's cache."""

    def __init__(
        self,
        browser: Browser,
        address: str,
        *,
        cookies: StorageState | None = None,
        script: str = "",
    ) -> None:
        self._browser, self._address, self._cookies = browser, address, cookies
        self._script = _WATCH + script

    @contextmanager
    def open(self, path: str) -> Iterator[tuple[Page, Traffic]]:
        """A page, and what it receives."""
        size = {"width": 1280, "height": 800}
        context = self._browser.new_context(
            viewport=size, locale="en-GB", storage_state=self._cookies
        )
        try:
            context.add_init_script(self._script)
            page = context.new_page()
            traffic = Traffic(page)
            page.goto(self._address + path, wait_until="commit")
            yield page, traffic
        finally:
            context.close()

    def time_to(self, path: str, script: str, argument: object, rounds: int) -> list[float]:
        """Seconds from the start of a navigation to a frame."""
        found = []
        for _ in range(rounds):
            with self.open(path) as (page, _):
                found.append(wait_for_frame(page, script, argument))
        return found


def wait_for_frame(page: Page, script: str, argument: object = None) -> float:
    """When the browser first showed a frame for which a script is true, in its own seconds."""
    expression = f"(argument) => ({script})(argument) ? performance.now() : 0"
    handle = page.wait_for_function(expression, arg=argument, timeout=1000 * PATIENCE_S)
    return float(handle.json_value()) / 1000


class Traffic:
    """What a page received."""

    def __init__(self, page: Page) -> None:
        self.num_bytes = 0
        self._responses: list[Any] = []
        page.on("response", lambda response: self._responses.append(response))
        client = page.context.new_cdp_session(page)
        client.send("Network.enable")
        client.on("Network.dataReceived", self._count)

    def _count(self, event: dict[str, Any]) -> None:
        self.num_bytes += event["dataLength"]

    def script_kb(self) -> float:
        """The size of all scripts, each compressed."""
        scripts = [one for one in self._responses if one.request.resource_type == "script"]
        return sum(len(gzip.compress(one.body())) for one in scripts) / 1000

    def count_missing(self, wanted: list[float]) -> int:
        """How many numbers were in no answer, with the precision of a float32."""
        found: list[float] = []
        for one in self._responses:
            if one.request.resource_type in ("fetch", "xhr"):
                found += map(float, re.findall(r"-?\d+\.\d+(?:e-?\d+)?", one.text()))
        return sum(all(abs(one - value) > 1e-6 for one in found) for value in wanted)


def measure_memory(process: subprocess.Popen[str]) -> float:
    """The memory of a server and all its processes, in MB."""
    first = psutil.Process(process.pid)
    found = (first, *first.children(recursive=True))
    return sum(one.memory_info().rss for one in found) / 2**20


@contextmanager
def ending(process: subprocess.Popen[str]) -> Iterator[None]:
    """End a server and its processes after the block."""
    try:
        yield
    finally:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
        for one in children:
            if one.is_running():
                one.kill()
        process.wait(10)
