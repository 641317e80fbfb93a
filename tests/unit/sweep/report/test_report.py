"""The report of a sweep is one page without a network, and one picture."""

from __future__ import annotations

import math
import re
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from epochal.config.node import from_plain
from epochal.sweep.report.axis import Axis, axis_of_numbers, axis_of_parameter, show_value
from epochal.sweep.report.figures import prepare_figures
from epochal.sweep.report.html_report import render_html
from epochal.sweep.report.write_report import write_report
from epochal.sweep.settings import SweepSettings, read_settings
from epochal.sweep.space import SweepParameter, ValueChoice, ValueRange
from epochal.sweep.trials import Trial, TrialRun

if TYPE_CHECKING:
    from pathlib import Path

SPACE = {
    "optim.lr": {"min": 1e-4, "max": 1.0, "log": True},
    "model.kind": ["<a>", "b"],
    "model.depth": {"min": 1, "max": 9, "when": {"model.kind": "b"}},
}


def read(**more: object) -> SweepSettings:
    sweep = {"space": SPACE, "objective": "-val/loss", "method": "random", **more}
    return read_settings(from_plain(sweep), from_plain({"optim": {"lr": 0.1}}))


def made_up(count: int, *, num_objectives: int = 1) -> list[Trial]:
    trials = []
    for number in range(count):
        values = {"optim.lr": 10.0 ** -(number % 5), "model.kind": "<a>" if number % 2 else "b"}
        if values["model.kind"] == "b":
            values["model.depth"] = 1 + number % 9
        state = ("finished", "finished", "pruned", "failed")[number % 4]
        curve = tuple(number % 7 + 1 / step for step in range(1, 6))
        curves = () if state == "failed" else (curve,) * num_objectives
        trials.append(Trial(number, values, [TrialRun(None, state=state, curves=curves)]))  # type: ignore[arg-type]
    return trials


def test_the_page_needs_no_network_and_is_well_formed() -> None:
    rows = {"none": (0, 1), "one": (1, 1), "many": (60, 1), "two objectives": (40, 2)}
    for name, (count, num) in rows.items():
        objective = ["-val/loss", "+val/acc"][:num]
        page = render_html(
            prepare_figures(
                "<sweep>", read(objective=objective), made_up(count, num_objectives=num)
            )
        )
        assert "<h1>&lt;sweep&gt;</h1>" in page, name
        links = re.findall(r'(?:src|href)=|url\(|@import|https?://[^"<\s]*', page)
        assert set(links) <= {"http://www.w3.org/2000/svg"}, name
        assert "prefers-color-scheme: dark" in page
        body = page[page.index("<body>") : page.index("</html>")]
        assert ElementTree.fromstring(body).tag == "body", name
        assert "nan" not in body, name
        sections = re.findall("<h2>(.*?)</h2>", body)
        expected = (
            {"History"}
            if count < 2
            else {
                *("Best trials", "History", "Curves", "Importance", "Results by parameter"),
                "Parallel coordinates",
            }
        )
        assert set(sections) >= expected, name
        assert ("Objectives" in sections) == (num == 2), name


def test_equal_results_have_the_same_colour() -> None:
    figures = prepare_figures("sweep", read(), made_up(60))
    shares: dict[float, set[float]] = {}
    for mark in figures.marks:
        if mark.objectives:
            shares.setdefault(mark.objectives[0], set()).add(mark.share)
    assert len(shares) == 7
    assert all(len(one) == 1 for one in shares.values())
    assert shares[min(shares)] == {1.0}


def test_every_mark_says_which_trial_it_is() -> None:
    page = render_html(prepare_figures("s", read(), made_up(8)))
    assert page.count("<title>trial 0, finished\nval/loss 0.2\noptim.lr = 1\n") >= 3
    assert "<title>trial 2, pruned" in page
    assert "<title>trial 3, failed" in page
    assert "&lt;a&gt;" in page
    assert "<a>" not in page


def test_axes_place_values_between_0_and_1() -> None:
    log = axis_of_parameter(SweepParameter("x", ValueRange(1e-4, 1.0, is_log=True)), [0.01])
    assert log.place(0.01) == pytest.approx(0.5)
    assert [text for _, text in log.ticks()] == ["0.0001", "0.001", "0.01", "0.1", "1"]
    assert log.place(99) == 1.0  # beyond: at the edge
    assert log.place(-1) is None
    choice = axis_of_parameter(SweepParameter("x", ValueChoice(("b", "a"))), ["b", "a", "b"])
    assert choice == Axis("x", choices=("a", "b"))
    assert choice.place("b") == 0.75
    assert choice.place("c") is None
    numbers = axis_of_parameter(SweepParameter("x", ValueChoice((8, 16, 128))), [128, 8])
    assert numbers.choices == ("8", "128")
    assert axis_of_numbers("y", [3.0, math.nan]).place(3.0) == pytest.approx(0.5)
    assert [text for _, text in axis_of_numbers("y", [0.0, 1.0]).ticks()][:2] == ["0", "0.2"]
    assert show_value({"type": "focal", "gamma": 2}) == "focal(gamma=2)"
    assert show_value([1, 2]) == "[1, 2]"


def test_a_picture_is_written_if_matplotlib_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = SimpleNamespace(path=tmp_path, id="toy")
    written = list(write_report(folder, read(), made_up(8)))  # type: ignore[arg-type]
    assert written == [tmp_path / "report.html", tmp_path / "report.png"]
    assert (tmp_path / "report.png").read_bytes()[:4] == b"\x89PNG"
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    _, note = write_report(folder, read(), made_up(8))  # type: ignore[arg-type]
    assert note == "report.png needs matplotlib: pip install 'epochal[plot]'"
