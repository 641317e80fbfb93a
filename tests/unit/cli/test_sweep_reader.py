"""Sweeps as the web page shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from browsing import Browser
from comparing import default, make_run
from epochal.cli.sweep_reader import FolderSweepReader
from epochal.errors import RecordError
from epochal.records.layout.stop_request import read_stop_request
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
    counts = {name: sweep[name] for name in ("planned", "trials", "finished", "pruned", "failed")}
    assert counts == {"planned": 3, "trials": 3, "finished": 3, "pruned": 0, "failed": 0}
    assert sweep["parameters"] == ["optim.lr"]
    for odd in ("unknown", "..", folder.id[:5], "last", f"..%2f{folder.id}"):
        assert browser.send("GET", f"/api/sweeps/{odd}").status == 404, odd
    browser.close()


def test_a_trial_that_trains_is_shown_as_running(tmp_path: Path) -> None:
    folder = new_sweep(tmp_path)
    for number, status in enumerate(("running", "interrupted")):
        values = {"optim.lr": 0.1 * (number + 1)}
        facts = {"sweep": folder.id, "number": number, "repeat": 0, "values": values}
        leave_run(folder.write_job(folder.read_base(), facts), status=status)
    found = FolderSweepReader(folder.path.parent.parent).read(folder.id)
    assert found is not None
    assert [one["state"] for one in found["items"]] == ["running", "waiting"]


def test_without_sweeps_the_list_is_empty(tmp_path: Path) -> None:
    assert FolderSweepReader(tmp_path).summaries() == []
    assert FolderSweepReader(tmp_path).read("x") is None


class RecordingWorker:
    """Remembers which sweeps it should run."""

    is_alive = True

    def __init__(self) -> None:
        self.started: list[str] = []

    def start_sweep(self, sweep_id: str) -> None:
        self.started.append(sweep_id)


def test_a_sweep_is_stopped_and_continued_with_more_trials(tmp_path: Path) -> None:
    folder, worker = new_sweep(tmp_path), RecordingWorker()
    runs = folder.path.parent.parent
    browser = Browser(runs)
    browser.site = replace(browser.site, sweeps=FolderSweepReader(runs), worker=worker)
    browser.app = WebApp(browser.site)
    browser.sign_in()
    path = f"/api/sweeps/{folder.id}"
    assert browser.send("POST", f"{path}/stop", body={}).status == 409
    lock = folder.lock()
    assert browser.send("POST", f"{path}/stop", body={}).status == 200
    assert read_stop_request(folder.path).startswith("stop requested")
    assert browser.send("POST", f"{path}/add", body={"trials": 4}).json["planned"] == 7
    assert folder.read_settings().num_trials == 7
    assert worker.started == [], "the process that runs it takes the change over"
    lock.release()
    assert browser.send("POST", f"{path}/add", body={"trials": 1}).status == 200
    assert worker.started == [folder.id]
    for trials in (0, -1, 10_001, 1.5, "3", None):
        assert browser.send("POST", f"{path}/add", body={"trials": trials}).status == 422, trials
    assert browser.send("POST", "/api/sweeps/unknown/add", body={"trials": 1}).status == 404
    assert browser.send("POST", "/api/sweeps/unknown/stop", body={}).status == 404
    facts = folder.path / "sweep.json"
    facts.write_text(facts.read_text().replace("sweep.trials=8", "sweep.trials=9"))
    forged = browser.send("POST", f"{path}/add", body={"trials": 1})
    assert forged.status == 409, "it was not changed by this user"
    browser.close()


def test_no_trials_are_added_to_a_grid_whose_points_were_all_tried(tmp_path: Path) -> None:
    space = "  space: {optim.lr: [0.1, 0.2, 0.3]}\n"
    folder = new_sweep(tmp_path, "  method: grid\n", space=space)
    reader = FolderSweepReader(folder.path.parent.parent)
    base = folder.read_base()
    for number, rate in enumerate((0.1, 0.2, 0.3)):
        assert not reader.add_trials(folder.id, 1), "nothing runs it"
        found = reader.read(folder.id)
        assert found is not None
        assert (found["planned"], found["trials"]) == (3, number)
        facts = {"sweep": folder.id, "number": number, "repeat": 0, "values": {"optim.lr": rate}}
        leave_run(folder.write_job(base, facts), values=[rate])
    with pytest.raises(RecordError, match="every point of the grid was tried"):
        reader.add_trials(folder.id, 1)


def test_scatter_shows_settings_and_what_mattered(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for number in range(8):
        make_run(
            runs / "p" / "t" / f"20261114-10000{number}-aaaa",
            {"optim.lr": 0.1 * (number // 2), "task.y": number % 2, "task.x": 1},
            metrics={"val/acc": 0.1 * (number // 2)},
            monitor="+val/acc",
        )
    browser = Browser(runs)
    browser.site = replace(browser.site, sweeps=FolderSweepReader(runs))
    browser.app = WebApp(browser.site)
    browser.sign_in()
    found = browser.get("/api/compare/scatter", where="step >= 0", metric="val/acc")
    assert found["columns"] == ["optim.lr", "task.y", "val/acc"]
    assert len(found["runs"]) == 8
    assert found["runs"][2]["values"][0] == pytest.approx(0.1)
    assert next(iter(found["importance"])) == "optim.lr"
    for number, optim in enumerate(({"lr": 0.1, "eps": default(1e-8)}, {"momentum": 0.9})):
        optim |= {"type": ("AdamW", "SGD")[number]}
        values = {f"optim.{key}": value for key, value in optim.items()} | {"task.y": number}
        make_run(runs / "p" / "t" / f"20261114-11000{number}-bbbb", values)
    pair = ["20261114-110000-bbbb", "20261114-110001-bbbb"]
    # lr and momentum follow from the class, and eps is a default.
    assert browser.get("/api/compare/scatter", run=pair)["columns"][:-1] == ["optim.type", "task.y"]
    some = browser.get("/api/compare/scatter", run=["20261114-100000-aaaa", "20261114-100007-aaaa"])
    assert [one["id"][14] for one in some["runs"]] == ["0", "7"]
    for query in ({}, {"where": "a", "run": "x"}):
        assert browser.send("GET", "/api/compare/scatter", query=query).status == 422, query
    assert browser.send("GET", "/api/compare/scatter", query={"run": "x"}).status == 404
    assert browser.send("GET", "/api/compare/scatter", query={"where": "lr >"}).status == 422
    browser.close()
