"""Launching from the page: a newcomer's whole walk, a phone, the queue, YAML with mistakes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from browser.conftest import serving
from small_project import write_shop

expect = pytest.importorskip("playwright.sync_api").expect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

PHONE = {"width": 390, "height": 844}
SLOW_MS = 120_000  # a process that imports torch, on a busy machine


@pytest.mark.long
def test_a_newcomer_launches_watches_compares_and_stops_a_run(
    tmp_path: Path, open_page: Callable[..., Page], keep_screenshot: Callable[[Page, str], None]
) -> None:
    project = write_shop(tmp_path / "project")
    with serving(project / "runs", "--allow-launch") as served:
        page = open_page(served)
        page.set_default_timeout(SLOW_MS)
        page.get_by_text("No runs yet").wait_for()
        page.get_by_role("link", name="Launch an experiment").click()
        page.get_by_label("Name of the run").fill("first")
        page.get_by_role("button", name="Start").click()
        page.get_by_role("heading", name="first").wait_for()  # the page follows the job
        first = page.url.rpartition("/")[2]
        page.get_by_role("img", name="val/acc").wait_for()
        page.get_by_text("finished").wait_for()
        page.get_by_role("link", name="Rerun with changes").click()
        page.get_by_label("Name of the run").fill("longer")
        page.get_by_label("train.for").fill("1000000ep")
        page.get_by_role("button", name="Start").click()
        page.get_by_role("heading", name="longer").wait_for()
        second = page.url.rpartition("/")[2]
        page.get_by_role("img", name="val/acc").wait_for()
        page.goto(f"{served.address}/#/compare?run={first}&run={second}")
        row = page.get_by_role("row", name="train.for")
        expect(row.get_by_role("cell")).to_have_text(["2ep", "1000000ep"])
        keep_screenshot(page, "walk-compare")
        page.goto(f"{served.address}/#/runs/{second}")
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Resume").wait_for()
        page.goto(f"{served.address}/#/queue")
        page.get_by_role("button", name="Pause").click()  # the resumed run would never end
        page.get_by_role("button", name="Continue").wait_for()
        page.go_back()
        page.get_by_role("button", name="Resume").click()
        page.get_by_text("The run is in the queue").wait_for()
        keep_screenshot(page, "walk-resumed")
        with page.expect_download() as saved:
            page.get_by_role("link", name="Download").click()
        assert second in saved.value.suggested_filename
        page.get_by_role("link", name="Checkpoints").click()
        with page.expect_download() as saved:
            page.get_by_role("link", name="Weights").first.click()
        assert saved.value.suggested_filename.endswith(".safetensors")


def test_a_phone_launches_without_typing_but_a_name(
    tmp_path: Path, open_page: Callable[..., Page], keep_screenshot: Callable[[Page, str], None]
) -> None:
    project = write_shop(tmp_path / "project")
    with serving(project / "runs", "--allow-launch", "--no-work") as served:
        page = open_page(served, "#/queue", viewport=PHONE, has_touch=True)
        page.get_by_role("link", name="Launch").first.tap()
        page.get_by_label("Name of the run").fill("from a phone")
        page.get_by_label("optim", exact=True).select_option("AdamW")
        page.get_by_text("Implements AdamW").wait_for()
        keep_screenshot(page, "launch-phone")
        width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert width <= 0
        page.get_by_role("button", name="Start").tap()
        page.get_by_role("row", name="from a phone").get_by_text("waiting").wait_for()
        keep_screenshot(page, "jobs-phone")
        audit = (served.root / ".epochal" / "launches.jsonl").read_text().splitlines()
        launch = json.loads(audit[-1])
        changed = (launch["name"], launch["overrides"])
        assert changed == ("from a phone", {"optim": "AdamW"})


def test_mistakes_are_shown_at_their_field_and_at_their_line(
    tmp_path: Path, open_page: Callable[..., Page], keep_screenshot: Callable[[Page, str], None]
) -> None:
    project = write_shop(tmp_path / "project")
    with serving(project / "runs", "--allow-launch", "--no-work") as served:
        page = open_page(served, "#/launch")
        start = page.get_by_role("button", name="Start")
        seed = page.get_by_label("seed", exact=True)
        seed.fill("1.5")
        page.get_by_text("This must be a whole number").wait_for()
        expect(start).to_be_disabled()
        seed.fill("7")
        expect(start).to_be_enabled()
        page.get_by_role("button", name="YAML").click()
        text = page.get_by_label("The config as YAML")
        expect(text).to_have_value(re.compile("seed: 7"))
        text.fill("seed: 7\noptim:\n  type: AdamW\n  lr: fast\n")
        page.locator(".lines .wrong", has_text="4").wait_for()
        expect(start).to_be_disabled()
        keep_screenshot(page, "launch-mistake")
        page.get_by_role("button", name="line 4").click()
        assert text.evaluate("one => one.value.slice(one.selectionStart, one.selectionEnd)") == (
            "  lr: fast"
        )
        text.fill("seed: 8\noptim:\n  type: AdamW\n  lr: 0.25\n")
        page.locator(".lines .wrong").wait_for(state="detached")
        page.get_by_role("button", name="Form").click()
        expect(seed).to_have_value("8")
        expect(page.get_by_label("lr", exact=True)).to_have_value("0.25")
        keep_screenshot(page, "launch-light")
        page.reload()  # what was typed is kept, also while launching is off
        expect(seed).to_have_value("8")
        page.get_by_role("button", name="Reset").click()
        expect(seed).not_to_have_value("8")
        page.get_by_role("button", name="Sign out").click()
        page.get_by_text("You are signed out").wait_for()
        page.reload()
        page.get_by_text("Open the link that epochal serve printed").wait_for()


def test_jobs_are_reordered_by_drag_and_by_key_and_removed(
    tmp_path: Path, open_page: Callable[..., Page], keep_screenshot: Callable[[Page, str], None]
) -> None:
    project = write_shop(tmp_path / "project")
    with serving(project / "runs", "--allow-launch", "--no-work") as served:
        page = open_page(served, "#/queue")
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Continue").wait_for()
        for name in ("one", "two", "three"):
            page.goto(f"{served.address}/#/launch")
            page.get_by_label("Name of the run").fill(name)
            page.get_by_role("button", name="Start").click()
            page.get_by_role("row", name=name).wait_for()
        rows = page.locator("tbody tr")

        def expect_order(*names: str) -> None:
            expect(rows).to_contain_text(list(names))

        expect_order("one", "two", "three")
        page.get_by_role("row", name="three").drag_to(page.get_by_role("row", name="one"))
        expect_order("three", "one", "two")
        for key in ("j", "j", "J"):
            page.keyboard.press(key)
        expect_order("three", "two", "one")
        page.keyboard.press("K")
        expect_order("three", "one", "two")
        page.get_by_role("button", name="Move down 1").click()  # without a mouse or a keyboard
        expect_order("three", "two", "one")
        expect(page.get_by_role("button", name="Move down 1")).to_be_disabled()
        page.get_by_role("button", name="Move up 1").click()
        expect_order("three", "one", "two")
        page.get_by_role("button", name="Start next 2").click()
        expect_order("two", "three", "one")
        keep_screenshot(page, "jobs-light")
        page.get_by_role("button", name="Remove 2").click()
        page.get_by_text("removed").wait_for()
