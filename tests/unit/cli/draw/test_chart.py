"""Tests of charts in terminals and in PNG files."""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any

import pytest

from epochal.cli.draw.chart import Chart, draw_chart, render_chart
from epochal.cli.draw.png import save_png
from epochal.errors import ConfigError
from epochal.text.terminal import display_width

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


def test_a_line_goes_from_corner_to_corner() -> None:
    assert draw_chart(chart(), width=34, is_plain=True) == [
        "a title",
        "   1 +                          **",
        "     |                        ***",
        "     |                      **",
        "0.75 +                   ***",
        "     |                 ***",
        "     |               ***",
        " 0.5 +            ****",
        "     |          ***",
        "     |        ***",
        "0.25 +      ***",
        "     |    **",
        "     | ***",
        "   0 +**",
        "     +----------------------------",
        "      0            50          100",
        "      step",
    ]


def test_no_line_is_wider_than_the_terminal() -> None:
    for width in [20, 80, 140, 300]:
        lines = {"a": [1.0] * 101, "b": [step**2 for step in range(101)]}
        text = draw_chart(chart(lines=lines, title=""), width=width)
        assert max(len(line) for line in text[:-3]) <= width, width
        assert max(len(line) for line in text[1:14]) > width - 5, width


def test_titles_and_names_fit_the_terminal_too() -> None:
    for width in [40, 80, 200]:
        for is_plain in [True, False]:
            name = "val/a_name_that_is_too_long_for_every_legend_of_a_chart_here"
            lines = {name: [1.0] * 101, "验证/准确率" * 9: [2.0] * 101}
            title = f"数字 (20261115-204810-9957): {name}, train/loss"
            text = draw_chart(chart(lines=lines, title=title), width=width, is_plain=is_plain)
            words = max(map(display_width, title.split()))
            assert max(map(display_width, text)) <= max(width, words + 2), (width, is_plain)
            assert text[-2].endswith(": 1"), (width, is_plain)
            assert text[-1].endswith(": 2"), (width, is_plain)


def test_without_colours_every_line_has_a_mark_in_the_legend() -> None:
    lines = {f"line {i}": [float(i)] * 101 for i in range(10)}
    text = draw_chart(chart(lines=lines), width=60)
    assert [line.strip()[0] for line in text[-9:-1]] == list("*ox+#@%&")
    assert text[-1].strip() == "and 2 more, of dots"
    for mark in "*ox+#@%&.":
        assert any(mark in line.partition("│")[2] + line.partition("┤")[2] for line in text)


def test_lines_on_top_of_each_other_alternate() -> None:
    lines = {"a": [1.0] * 101, "b": [1.0] * 100 + [1.001], "c": [0.0] * 101}
    top = draw_chart(chart(lines=lines), width=40)[1]
    assert "*o*o*o" in top


def test_marks_are_added_when_there_are_more_lines_than_colours() -> None:
    few = draw_chart(chart(lines={"a": [1.0] * 101, "b": [2.0] * 101}), width=60, has_colours=True)
    assert any(0x2800 < ord(letter) < 0x2900 for line in few for letter in line)
    assert few[-1].strip() == "\x1b[33m━━\x1b[0m b: 2"
    lines = {f"line {i}": [float(i)] * 101 for i in range(7)}
    many = draw_chart(chart(lines=lines), width=60, has_colours=True)
    assert many[-1].strip() == "\x1b[36m%\x1b[0m line 6: 6"


def test_lines_skip_missing_values_and_break_at_nan() -> None:
    values = [0.0, None, 1.0, math.nan, 1.0, None, 0.0]
    text = draw_chart(chart(x=list(range(7)), lines={"y": values}), width=30, is_plain=True)
    top = text[1].partition("+")[2]
    assert top.rstrip().count("*") == 2, "one on each side of the gap, and nothing between"
    assert all(line.count("*") >= 2 for line in text[2:13]), "both slopes are drawn"


def test_lines_are_drawn_with_braille_characters() -> None:
    text = draw_chart(chart(), width=34)
    assert text[1].startswith("   1 ┤")
    assert any(0x2800 <= ord(letter) < 0x2900 for letter in text[1])


def test_colours_are_used_only_on_request() -> None:
    assert not any("\x1b" in line for line in draw_chart(chart(), width=60))
    assert any("\x1b[36m" in line for line in draw_chart(chart(), width=60, has_colours=True))


def test_charts_in_pipes_have_no_colours(monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = render_chart(chart())
    assert not any("\x1b" in line for line in text)
    assert max(len(line) for line in text) <= 60


def test_legend_has_names_and_ranges() -> None:
    lines = {"low": [0.0, 1.0], "high": [5.0, 10.0], "high too": [5.0, 10.0]}
    text = draw_chart(chart(x=[0, 1], lines=lines), width=60, is_plain=True)
    assert [line.strip() for line in text[-2:]] == ["* low: 0 to 1", "o high, high too: 5 to 10"]


def test_legend_of_a_constant_line_has_one_number() -> None:
    lines = {"still": [3.0, 3.0], "moving": [1.0, 2.0]}
    text = draw_chart(chart(x=[0, 1], lines=lines), width=60, is_plain=True)
    assert [line.strip() for line in text[-2:]] == ["* still: 3", "o moving: 1 to 2"]


def test_marks_borders_and_points_are_drawn_and_explained() -> None:
    text = draw_chart(
        chart(
            ticks={"evaluation": [50, 100]},
            borders={"first": 0, "second": 50},
            points={"best": 0},
        ),
        width=70,
        is_plain=True,
    )
    assert text[-1].strip() == "step, | evaluation, ^ best, first from 0, second from 50"
    assert text[-3].strip().startswith("+^---")
    assert text[-3].endswith("|")
    assert text[1].count(":") == 1, "a border, but not where everything begins"


def test_a_logarithmic_axis_has_powers_of_ten() -> None:
    x = [10 ** (power / 4) for power in range(-16, 1)]
    text = draw_chart(chart(x=x, lines={"y": x}, is_log_x=True), width=60)
    assert text[-2].split() == ["1e-04", "1e-03", "1e-02", "1e-01", "1e+00"]


def test_logarithmic_y_axis_has_even_powers_of_ten() -> None:
    values = [10 ** (power / 25) for power in range(101)]
    text = draw_chart(chart(lines={"y": values}, is_log_y=True), width=40)
    assert [line.split()[0] for line in text[1:14:3]] == ["1e+04", "1e+03", "100", "10", "1"]
    assert draw_chart(chart(x=[0], lines={"y": [3.0]}, is_log_y=True), width=40)
    assert draw_chart(chart(x=[0], lines={"y": [math.nan]}, is_log_y=True), width=40)


def test_numbers_below_the_axis_are_round() -> None:
    text = draw_chart(chart(x=[7, 100], lines={"y": [0.0, 1.0]}), width=80)
    assert text[-2].split() == ["20", "40", "60", "80", "100"]
    text = draw_chart(chart(x=[7, 120], lines={"y": [0.0, 1.0]}), width=80)
    assert text[-2].split() == ["25", "50", "75", "100"]


def test_values_that_are_not_finite_or_too_high_do_not_change_the_axis() -> None:
    lines = {"y": [1.0, math.nan, 2.0, 1e9, math.inf]}
    text = draw_chart(chart(x=[0, 1, 2, 3, 4], lines=lines, top=4.0), width=40)
    assert text[1].startswith("4 ┤")


def test_constant_and_nan_lines_can_be_drawn() -> None:
    for values in [[0.0, 0.0], [3.0, 3.0], [-1.0, -1.0], [math.nan, math.nan]]:
        assert len(draw_chart(chart(x=[0, 1], lines={"y": values}), width=40)) == 17, values


def test_axis_labels_have_enough_digits_to_differ() -> None:
    text = draw_chart(chart(x=[0, 1], lines={"y": [2.3041, 2.3045]}), width=40)
    labels = [line.split()[0] for line in text[1:14:3]]
    assert labels == ["2.3045", "2.3044", "2.3043", "2.3042", "2.3041"]


def test_one_point_can_be_drawn() -> None:
    assert draw_chart(chart(x=[0], lines={"y": [1.0]}), width=40)


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
