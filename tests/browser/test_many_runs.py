"""A table of very many runs: only what is visible is asked for and drawn."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

expect = pytest.importorskip("playwright.sync_api").expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page, Route

    from browser.conftest import ServedRuns

TOTAL = 100_000


def test_a_table_of_a_hundred_thousand_runs_draws_only_what_is_visible(
    served: ServedRuns, open_page: Callable[..., Page]
) -> None:
    asked: list[int] = []
    page = open_page(served)
    page.get_by_text("6 runs").wait_for()
    page.route("**/api/runs?*", lambda route: answer(route, asked))
    page.route("**/api/sparklines?*", lambda route: route.fulfill(json={}))
    page.reload()
    page.get_by_text("100,000 runs").wait_for()
    page.get_by_role("link", name="run 0", exact=True).wait_for()
    assert page.locator(".body [role=row]").count() < 100
    page.locator(".table").evaluate("one => (one.scrollTop = 50_000 * 34)")
    page.get_by_role("link", name="run 50000", exact=True).wait_for()
    page.get_by_role("link", name="run 50003", exact=True).click()
    page.locator("main h2").first.wait_for()
    page.go_back()
    page.get_by_role("link", name="run 50003", exact=True).wait_for()
    page.locator(".table").evaluate("one => (one.scrollTop = one.scrollHeight)")
    page.get_by_role("link", name="run 99999", exact=True).wait_for()
    assert page.locator(".body [role=row]").count() < 100
    assert len(asked) < 20
    for _ in range(3):
        page.keyboard.press("j")
    expect(page.locator(".row.cursor")).to_have_attribute("aria-rowindex", "3")


def answer(route: Route, asked: list[int]) -> None:
    query = {
        name: values[0] for name, values in parse_qs(urlsplit(route.request.url).query).items()
    }
    first, limit = int(query["offset"]), int(query["limit"])
    asked.append(first)
    plain = {"tag": "", "status": "running", "started": "2026-11-14T10:00:00+00:00", "cells": [0.5]}
    rows = [{"id": f"run {i}", **plain} for i in range(first, min(first + limit, TOTAL))]
    columns = [{"name": "val/acc", "kind": "metric"}]
    body = {"total": TOTAL, "columns": columns, "rows": rows, "problem": None, "hidden_trials": 0}
    route.fulfill(body=json.dumps(body), content_type="application/json")
