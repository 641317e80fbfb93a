"""The description of the API, and thousands of odd requests made from it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings

from epochal.web.openapi import describe_api
from epochal.web.route_table import ROUTES

if TYPE_CHECKING:
    from browsing import Browser

EXAMPLES = 6
"""Requests per operation and kind."""


def test_description_has_every_route_of_the_api(browser: Browser) -> None:
    described = browser.get("/api/openapi.json")["paths"]
    found = {(method.upper(), path) for path, one in described.items() for method in one}
    assert found == {(row.method, row.path) for row in ROUTES if row.path.startswith("/api/")}


def test_no_request_makes_the_server_fail(busy_browser: Browser, record_property) -> None:
    """Valid and invalid requests, from a fixed seed; streams never end and are left out."""
    browser, count = busy_browser, 0
    routes = [row for row in ROUTES if row.path != "/api/events"]
    schema = schemathesis.openapi.from_dict(describe_api(routes, "1"))
    modes = schemathesis.GenerationMode
    for row in routes:
        if not row.path.startswith("/api/"):
            continue
        operation = schema[row.path][row.method]
        # No text is wrong in a path, so routes without other fields have no invalid requests.
        for mode in (modes.POSITIVE, modes.NEGATIVE)[: 1 + bool(row.query or row.body)]:

            def check(case) -> None:
                nonlocal count
                count += 1
                send_and_check(browser, case)

            limits = settings(
                max_examples=EXAMPLES,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            strategy = operation.as_strategy(generation_mode=mode)
            seed(0)(limits(given(case=strategy)(check)))()
    assert count > 150
    record_property("counted", f"{count} requests made from the description, no server error")


def send_and_check(browser: Browser, case) -> None:
    path = case.formatted_path
    query = urlencode(case.query or {}, doseq=True, errors="replace").encode()
    is_json = isinstance(case.body, dict | list | str | int | float | bool | None)
    body = json.dumps(case.body).encode() if is_json else b""
    headers = browser.headers(case.method)
    done = browser.request(case.method, path, headers=headers, query=query, body=body)
    assert done.status < 500, (case.method, path, query, body, done.body)
    if done.status >= 400:
        assert set(done.json) == {"error"}, done.body
