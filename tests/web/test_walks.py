"""Walks through the page as a user would take them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from web.conftest import serving
from web.generated_runs import BASE, FAILED, SEEDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

    from web.conftest import ServedRuns

PHONE = {"width": 360, "height": 740}
TABS = ("readme", "config", "code", "log", "media", "checkpoints", "machine")


def wait_for_text(page: Page, text: str) -> None:
    page.get_by_text(text).first.wait_for()


def test_every_page_is_shown_in_light_dark_and_at_phone_size(
    served: ServedRuns, open_page: Callable[..., Page], keep_screenshot: Callable[[Page, str], None]
) -> None:
    compared = "&".join(f"run={run}" for run in (BASE, "20261114-140000-wide", *SEEDS))
    places = {
        "runs": ("#/runs", "baseline"),
        "groups": ("#/runs?group=seed", "3 runs"),
        "run": (f"#/runs/{BASE}", "grad_norm"),
        "failed": (f"#/runs/{FAILED}", "shape mismatch"),
        "compare": (f"#/compare?{compared}&bands=1", "3 seeds"),
        "mail": ("#/mail", "baseline finished"),
    } | {f"run-{tab}": (f"#/runs/{BASE}/{tab}", "") for tab in TABS}
    looks = {
        "light": {"color_scheme": "light"},
        "dark": {"color_scheme": "dark"},
        "phone": {"viewport": PHONE, "color_scheme": "light"},
    }
    for look, options in looks.items():
        page = open_page(served, "#/runs", **options)
        for name, (place, text) in places.items():
            page.goto(f"{served.address}/{place}")
            if text:
                wait_for_text(page, text)
            page.wait_for_load_state("networkidle") if False else page.wait_for_timeout(300)
            keep_screenshot(page, f"{name}-{look}")
            width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert width <= 0, f"{name} is too wide: {look}"


@pytest.mark.skip
def test_an_empty_project_says_what_to_type(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    with serving(tmp_path / "runs") as served:
        page = open_page(served)
        wait_for_text(page, "No runs yet")
        assert re.search("epochal run", page.content())
