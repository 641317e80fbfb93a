"""Sweeps as the web page shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from browsing import Browser
from epochal.cli.sweep_reader import FolderSweepReader
from epochal.web.app import WebApp
from swept import leave_run, new_sweep

if TYPE_CHECKING:
    from pathlib import Path


def test_a_sweep_is_shown_with_its_trials(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path)
    base = folder.read_base()
    runs = folder.path.parent.parent
    for number, value in enumerate((0.9, 0.5, 0.7)):
        values = {"optim.lr": 0.1 * (number + 1)}
        facts = {"sweep": folder.id, "number": number, "repeat": 0, "values": values}
        leave_run(folder.write_job(base, facts), values=[value])
    browser = Browser(runs)
    assert browser.site.sweeps is None
    browser.site = replace(browser.site, sweeps=FolderSweepReader(runs))
    browser.app = WebApp(browser.site)
    browser.sign_in()
    (found,) = browser.get("/api/sweeps")["sweeps"]
    assert (found["id"], found["is_running"]) == (folder.id, False)
    sweep = browser.get(f"/api/sweeps/{folder.id}")
    assert [one["state"] for one in sweep["items"]] == ["finished"] * 3
    assert sweep["items"][1]["objectives"] == [0.5]
    assert sweep["best_trials"][0] == 1
    assert sweep["parameters"] == ["optim.lr"]
    for odd in ("unknown", "..", folder.id[:5], "last", f"..%2f{folder.id}"):
        assert browser.send("GET", f"/api/sweeps/{odd}").status == 404, odd
    browser.close()


def test_without_sweeps_the_list_is_empty(tmp_path: Path) -> None:
    assert FolderSweepReader(tmp_path).summaries() == []
    assert FolderSweepReader(tmp_path).read("x") is None
