"""The pages of sweeps, with answers as the server gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from browser.generated_runs import BASE, SEEDS, WIDE

expect = pytest.importorskip("playwright.sync_api").expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page, Route

    from browser.conftest import ServedRuns

SUMMARY = {
    "id": "20261114-090000-grid",
    "begun": "2026-11-14T09:00:00+00:00",
    "is_running": True,
    "trials": 24,
    "planned": 40,
    "metric": "val/acc",
    "best": 0.974,
    "trial": 7,
    "run": BASE,
    "pruned": 6,
    "failed": 1,
    "finished": 16,
}


RUNS = (BASE, WIDE, *SEEDS)


def make_sweep() -> dict[str, object]:
    states = ["finished", "finished", "pruned", "finished"] * 5 + ["failed", "running", "waiting"]
    items = [
        {
            "number": i,
            "state": state,
            "values": {
                "optim.lr": 10 ** (-4 + i % 7 / 2),
                "optim.type": ("AdamW", "SGD")[i % 2],
                "model.width": 64 * (1 + i % 5),
            },
            "objectives": [0.9 + i % 8 / 100] if state == "finished" else None,
            "runs": [RUNS[i]] if i < len(RUNS) else [],
            "error": "ValueError: <b>wide</b>" if state == "failed" else None,
        }
        for i, state in enumerate(states)
    ]
    return SUMMARY | {
        "method": "tpe",
        "repeats": 1,
        "parameters": ["optim.lr", "optim.type", "model.width"],
        "objectives": [{"metric": "val/acc", "mode": "max"}],
        "best_trials": [3, 15],
        "importance": {"optim.lr": 0.71, "model.width": 0.2, "optim.type": 0.09},
        "items": items,
    }


def test_a_sweep_shows_progress_importance_and_its_best_trials_first(
    served: ServedRuns, open_page: Callable[..., Page], keep_screenshot: Callable[[Page, str], None]
) -> None:
    page = open_page(served, "#/sweeps")
    page.get_by_text("No sweeps").wait_for()
    page.route("**/api/sweeps", lambda route: route.fulfill(json={"sweeps": [SUMMARY]}))
    page.route("**/api/sweeps/*", lambda route: route.fulfill(json=make_sweep()))
    page.goto(f"{served.address}/#/runs")
    page.reload()
    page.get_by_role("link", name="Sweeps").click()
    page.get_by_role("link", name=str(SUMMARY["id"])).click()
    page.get_by_text("23 of 40 trials done: 16 finished, 6 pruned, 1 failed").wait_for()
    page.get_by_role("img", name="val/acc").locator("canvas").wait_for()
    keep_screenshot(page, "sweep-light")
    numbers = page.locator("tbody td:first-child").all_inner_texts()
    assert numbers[:3] == ["3", "15", "0"]
    assert page.locator("svg path.line").count() == 23
    expect(page.locator("svg path.marked")).to_have_count(1)
    asked: list[tuple[str, object]] = []

    def change(route: Route) -> None:
        asked.append((route.request.url.rpartition("/")[2], route.request.post_data_json))
        route.fulfill(json=make_sweep())

    page.route("**/api/sweeps/*/*", change)
    page.get_by_label("Number of trials to add").fill("5")
    page.get_by_role("button", name="Add trials").click()
    page.get_by_text("The trials were added").wait_for()
    page.get_by_role("button", name="Stop the sweep").click()
    page.get_by_text("The sweep was asked to end").wait_for()
    assert asked == [("add", {"trials": 5}), ("stop", {})]
    page.get_by_role("link", name="3", exact=True).click()
    page.get_by_role("heading", name="seeds").wait_for()
