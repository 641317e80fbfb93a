"""Tests of charts as pictures."""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any

import pytest

from epochal.cli.draw.chart import Chart
from epochal.cli.draw.png import save_png
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def chart(**changes: Any) -> Chart:
    given = {
        "title": "a title",
        "x": list(range(101)),
        "lines": {"up": [step / 100 for step in range(101)]},
        "x_name": "step",
        "y_name": "value",
    }
    return Chart(**(given | changes))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    found: list[Any] = []

    def savefig(self: Any, file: Any, **options: Any) -> None:
        found.append(self)
        file.write(b"\x89PNG")

    monkeypatch.setattr(figure, "savefig", savefig)
    return found


def test_a_picture_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "a.png"
    more = {"ticks": {"evaluation": [50]}, "borders": {"second": 50}, "points": {"best": 20}}
    lines = {"a": [1.0] * 101, "验证": [2.0] * 101}
    save_png(chart(lines=lines, title="数字", **more), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_both_axes_may_be_logarithmic(tmp_path: Path, drawn: list[Any]) -> None:
    lines = {"y": [1, 2000, math.inf]}
    save_png(chart(x=[0.1, 1, 10], lines=lines, is_log_x=True, is_log_y=True), tmp_path / "a.png")
    (axes,) = drawn[0].axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_ylim()[0] > 0


def test_lines_break_at_nan_and_isolated_points_are_marked(
    tmp_path: Path, drawn: list[Any]
) -> None:
    values: list[float | None] = [0.5] * 101
    values[10:13] = [math.nan, 0.7, math.nan]
    values[50] = None
    save_png(chart(lines={"y": values}), tmp_path / "a.png")
    (line,) = drawn[0].axes[0].lines
    assert len(line.get_xdata()) == 100
    assert math.isnan(line.get_ydata()[10])
    assert line.get_markevery() == [11]


def test_few_points_are_marked_and_many_are_not(tmp_path: Path, drawn: list[Any]) -> None:
    save_png(chart(x=[1, 2], lines={"y": [1.0, 2.0]}), tmp_path / "a.png")
    save_png(chart(), tmp_path / "a.png")
    few, many = (figure.axes[0].lines[0] for figure in drawn)
    assert few.get_markevery() == [0, 1]
    assert many.get_marker() in ("", "None")


def test_every_line_is_named(tmp_path: Path, drawn: list[Any]) -> None:
    for count in [1, 3, 9]:
        name = "val/a_name_that_is_too_long_for_every_legend_of_a_chart_here"
        lines = {f"{i} {name}": [float(i)] * 101 for i in range(count)}
        save_png(chart(lines=lines, title=name * 3), tmp_path / "a.png")
        legends = [*drawn[-1].legends, *filter(None, [drawn[-1].axes[0].get_legend()])]
        named = [text.get_text() for legend in legends for text in legend.get_texts()]
        assert len(named) == (count if count > 1 else 0), count
        assert all(len(one) <= 44 for one in named), count


def test_a_picture_without_matplotlib_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r"needs matplotlib(.|\n)*pip install 'epochal\[plot\]'"):
        save_png(chart(), tmp_path / "a.png")
