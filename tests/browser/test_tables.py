"""Result tables in the page: edited, linked, exported, and changed by two people at once."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from browser.conftest import serving
from browser.generated_runs import BASE

expect = pytest.importorskip("playwright.sync_api").expect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

    from browser.conftest import ServedRuns


def make_table(page: Page) -> None:
    """A table of two columns and two rows, with a metric of the baseline in it."""
    page.get_by_label("Name of the table").fill("paper")
    page.get_by_role("button", name="New table").click()
    for number, name in enumerate(("method", "acc"), start=1):
        page.get_by_role("button", name="Column", exact=True).click()
        page.get_by_label(f"Name of column {number}").fill(name)
    for number, text in enumerate(("ours & co", "theirs"), start=1):
        page.get_by_role("button", name="Row", exact=True).click()
        page.get_by_role("textbox", name=f"Row {number}, method").fill(text)
    page.get_by_role("button", name="Link row 1, acc").click()
    page.get_by_label("Find a run").fill("baseline")
    expect(page.get_by_role("radio", name="baseline")).to_have_count(1)
    page.get_by_role("radio", name="baseline").check()
    page.get_by_label("Metric", exact=True).select_option("val/acc")
    page.get_by_role("button", name="Link", exact=True).click()


def save(page: Page) -> None:
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("not saved").wait_for(state="detached")


def test_a_table_is_written_linked_exported_and_deleted(
    served: ServedRuns,
    tmp_path: Path,
    open_page: Callable[..., Page],
    keep_screenshot: Callable[[Page, str], None],
) -> None:
    shutil.copytree(served.root, tmp_path / "runs")
    with serving(tmp_path / "runs") as own:
        page = open_page(own, "#/tables")
        make_table(page)
        page.goto(f"{own.address}/#/runs")  # what was typed waits for the way back
        page.get_by_text("6 runs").wait_for()
        page.go_back()
        page.get_by_text("not saved").wait_for()
        save(page)
        keep_screenshot(page, "table-light")
        page.reload()
        value = page.locator("td.linked a")
        expect(value).to_have_text("0.9719")
        page.get_by_role("button", name="Export").click()
        formats = {"Markdown": "| method | acc |", "LaTeX": "ours \\& co", "CSV": "theirs,"}
        for name, text in formats.items():
            page.get_by_role("button", name=name).click()
            expect(page.get_by_role("dialog").locator("pre")).to_contain_text(text)
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Remove row 2").click()
        page.get_by_role("button", name="Link row 1, acc").click()
        page.get_by_role("button", name="Turn into text").click()
        expect(page.get_by_role("textbox", name="Row 1, acc")).to_have_value("0.9719")
        page.get_by_role("button", name="Discard changes").click()
        expect(value).to_have_text("0.9719")
        value.click()
        page.get_by_role("heading", name="baseline").wait_for()
        assert page.url.endswith(BASE)
        page.goto(f"{own.address}/#/tables/paper")
        page.get_by_role("button", name="Delete table").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete table").click()
        page.get_by_role("link", name="results").wait_for()
        expect(page.get_by_role("link", name="paper")).to_have_count(0)


def test_what_was_typed_survives_a_change_by_someone_else(
    served: ServedRuns,
    tmp_path: Path,
    open_page: Callable[..., Page],
    keep_screenshot: Callable[[Page, str], None],
) -> None:
    shutil.copytree(served.root, tmp_path / "runs")
    with serving(tmp_path / "runs") as own:
        page = open_page(own, "#/tables")
        make_table(page)
        save(page)
        mine = page.get_by_role("textbox", name="Row 2, method")
        mine.fill("theirs [1]")
        other = open_page(own, "#/tables/paper")
        other.get_by_role("textbox", name="Row 2, acc").fill("0.5")
        save(other)
        page.get_by_role("button", name="Save", exact=True).click()
        page.get_by_text("This table was changed somewhere else").wait_for()
        expect(mine).to_have_value("theirs [1]")
        keep_screenshot(page, "table-conflict")
        page.get_by_role("button", name="Load the other version").click()
        expect(page.get_by_role("textbox", name="Row 2, acc")).to_have_value("0.5")
        expect(mine).to_have_value("theirs")
