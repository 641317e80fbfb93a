"""Result tables of the page: versions, values of runs, exports, limits."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from unit.web.conftest import RUNS

if TYPE_CHECKING:
    from pathlib import Path

    from browsing import Browser

LINK = {"run": RUNS[0], "metric": "val/acc", "which": "best"}
PATH = "/api/tables/my%20results"


def create(browser: Browser, name: str = "my results") -> int:
    done = browser.send("POST", "/api/tables", body={"name": name})
    assert done.status == 200, done.body
    return int(done.json["version"])


def test_a_table_is_made_filled_exported_and_deleted(browser: Browser) -> None:
    assert browser.get("/api/tables") == {"tables": []}
    version = create(browser)
    assert browser.send("POST", "/api/tables", body={"name": "my results"}).status == 409
    assert browser.get(PATH) == {
        "name": "my results", "version": version, "columns": [], "rows": []
    }  # fmt: skip
    gone = LINK | {"run": "gone", "which": "last"}
    rows = [[{"text": "<b>a|b</b>"}, LINK], [{"text": ""}, gone]]
    body = {"version": version, "columns": ["method", "val/acc"], "rows": rows}
    done = browser.send("PUT", PATH, body=body)
    assert done.status == 200, done.body
    assert done.json["version"] > version
    assert done.json["rows"] == [
        [{"text": "<b>a|b</b>"}, LINK | {"value": 0.6, "problem": None}],
        [{"text": ""}, gone | {"value": None, "problem": "run gone is gone"}],
    ]
    assert browser.get(PATH) == done.json
    late = browser.send("PUT", PATH, body=body | {"columns": [], "rows": []})
    assert late.status == 409
    assert "changed meanwhile" in late.what
    assert browser.get(PATH) == done.json
    (listed,) = browser.get("/api/tables")["tables"]
    assert {**listed, "changed": ""} == {
        "name": "my results", "rows": 2, "columns": 2, "changed": ""
    }  # fmt: skip
    for form, text in (
        ("markdown", "| \\<b\\>a\\|b\\</b\\> | 0.6 |"),
        ("latex", "\\textless{}b\\textgreater{}a\\textbar{}b"),
        ("csv", "<b>a|b</b>,0.6\n,?\n"),
    ):
        assert text in browser.get(f"{PATH}/export", format=form)["text"], form
    assert browser.send("DELETE", PATH, body={}).json == {"deleted": "my results"}
    assert browser.send("GET", PATH).status == 404


def test_linked_runs_stay_and_values_follow_their_records(browser: Browser, runs: Path) -> None:
    body = {"version": create(browser), "columns": ["a"], "rows": [[LINK]]}
    browser.send("PUT", PATH, body=body)
    done = browser.send("POST", "/api/runs/delete", body={"ids": [RUNS[0]]})
    assert done.json["kept"] == [{"id": RUNS[0], "why": "has results in the table 'my results'"}]
    shutil.rmtree(runs / "shop" / "t" / RUNS[0])
    (row,) = browser.get(PATH)["rows"]
    assert row == [LINK | {"value": None, "problem": f"run {RUNS[0]} is gone"}]


def test_wrong_tables_are_refused(browser: Browser) -> None:
    version = create(browser)
    good = {"version": version, "columns": ["a"], "rows": [[{"text": "x"}]]}
    for change, status in (
        ({"rows": [[]]}, 422),
        ({"rows": [[{"text": 3}]]}, 422),
        ({"rows": [3]}, 422),
        ({"rows": {}}, 422),
        ({"rows": [[{"text": "\x00"}]]}, 422),
        ({"rows": [[LINK | {"which": "../x"}]]}, 422),
        ({"rows": [[{"text": "x"}]] * 501}, 422),
        ({"columns": ["a"] * 53}, 422),
        ({"columns": [1]}, 422),
        ({"version": "1"}, 422),
        ({"other": 1}, 422),
        ({"version": version + 1}, 409),
    ):
        assert browser.send("PUT", PATH, body=good | change).status == status, change
    for method in ("GET", "PUT", "DELETE"):
        body = good if method == "PUT" else {}
        assert browser.send(method, "/api/tables/unknown", body=body).status == 404, method
    for name in ("", "a/b", "..", "x" * 61):
        assert browser.send("POST", "/api/tables", body={"name": name}).status == 422, name
    assert browser.get(PATH)["version"] == version
