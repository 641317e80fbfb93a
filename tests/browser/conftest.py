"""One browser for all tests, real servers, and pages whose console errors fail a test."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from browser.chromium import find_chromium
from browser.generated_runs import generate_runs
from epochal.web.site.static_files import STATIC_DIR
from forked import Child
from small_project import write_shop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, BrowserContext, Page

SCREENSHOTS = Path(
    os.environ.get("EPOCHAL_SCREENSHOTS")
    or Path(__file__).resolve().parents[2] / "build" / "screenshots"
)
PATIENCE_MS = 60_000


class ServedRuns:
    """A server in its own process, and the state of a browser that opened its link."""

    def __init__(self, root: Path, *options: str, port: int = 0) -> None:
        self.root = root
        words = ("serve", "--no-open", "--port", str(port), "--runs-dir", str(root), *options)
        self.child = Child("-m", "epochal", *words, cwd=root.parent)
        self.link = next(line.split()[1] for line in self.child.stdout if line.startswith("open "))
        self.address = self.link.partition("/open#")[0]
        self.cookies: Any = None

    def stop(self) -> None:
        self.child.signal(signal.SIGINT)
        self.child.end()


@pytest.fixture(scope="package", autouse=True)
def own_leases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Leases of these tests alone: other runs of this user may have leased the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPOCHAL_LEASES_DIR", str(tmp_path_factory.mktemp("leases") / "here"))
        yield


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """The browser of these tests; its event loop would disturb those of other folders."""
    if not (STATIC_DIR / "index.html").is_file():
        pytest.skip("the page is not built: type `make web`")
    sync_api = pytest.importorskip("playwright.sync_api")
    sync_api.expect.set_options(timeout=PATIENCE_MS)
    path, environment = find_chromium()
    options = ["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=options, env=environment)
        yield browser
        browser.close()


@contextmanager
def serving(root: Path, *options: str, port: int = 0) -> Iterator[ServedRuns]:
    """A server of the runs in a folder, until the end of the block."""
    root.mkdir(parents=True, exist_ok=True)
    served = ServedRuns(root, *options, port=port)
    try:
        yield served
    finally:
        served.stop()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedRuns]:
    """A server of a project with generated runs that no test changes; it starts no jobs."""
    root = write_shop(tmp_path_factory.mktemp("web")) / "runs"
    generate_runs(root)
    with serving(root, "--allow-launch", "--no-work") as found:
        yield found


@pytest.fixture
def tolerated() -> list[str]:
    """The beginnings of console errors that a test expects."""
    # A browser reports each request that is refused or ends early; the page shows what it means.
    return ["Failed to load resource"]


@pytest.fixture
def open_page(chromium: Browser, tolerated: list[str]) -> Iterator[Callable[..., Page]]:
    """Opens a page of a server; errors in its console fail the test."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def begin(served: ServedRuns, place: str = "", **options: Any) -> Page:
        size = {"width": 1280, "height": 800}
        context = chromium.new_context(
            **{"viewport": size, "locale": "en-GB", "storage_state": served.cookies} | options
        )
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda one: one.type == "error" and errors.append(one.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: (errors.append(dialog.message), dialog.dismiss()))
        if served.cookies is None and "storage_state" not in options:
            page.goto(served.link)
            page.get_by_role("link", name="Runs", exact=True).wait_for()
            served.cookies = context.storage_state()
            if not place:
                return page  # the link leads to the runs
        page.goto(f"{served.address}/{place}")
        return page

    yield begin
    for context in contexts:
        context.close()
    assert [one for one in errors if not one.startswith(tuple(tolerated))] == []


@pytest.fixture
def keep_screenshot() -> Callable[[Page, str], None]:
    """Saves what a page looks like, in build/screenshots or where EPOCHAL_SCREENSHOTS says."""

    def keep(page: Page, name: str) -> None:
        page.screenshot(path=SCREENSHOTS / f"{name}.png")

    return keep
