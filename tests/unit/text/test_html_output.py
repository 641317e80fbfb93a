"""HTML for notebooks: texts, links, tables, charts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from epochal.text.html_output import draw_svg, format_html_table, link_to_run, to_html

if TYPE_CHECKING:
    import pytest

NAN, INF = float("nan"), float("inf")


def test_texts_are_shown_as_they_are() -> None:
    assert to_html('<b> & "\x1b[31m') == "&lt;b&gt; &amp; &quot;\\x1b[31m"


def test_links_are_relative_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, target in (
        (Path("runs/a b"), "runs/a%20b/README.md"),
        (tmp_path / "runs", "runs/README.md"),
        (Path("/else<where"), "file:///else%3Cwhere/README.md"),
    ):
        assert f'href="{target}"' in link_to_run(path), path
    assert ">&lt;run&gt;</a>" in link_to_run(Path("x"), "<run>")


def test_tables_have_a_header_or_named_rows() -> None:
    assert re.findall(r">(\w+)</t[hd]>", format_html_table([["1", "2"]], ["a", "b"])) == [*"ab12"]
    assert "<th" not in format_html_table([["a", "1"]])


def paths_of(svg: str) -> list[str]:
    """The paths of the lines, after that of the axes."""
    root = ElementTree.fromstring(svg)
    return [path.attrib["d"] for path in root.iter("path")][1:]


def test_a_chart_has_a_line_and_a_name_per_series() -> None:
    svg = draw_svg({"train/<loss>": ([1, 2, 3], [3.0, 2.0, 1.0]), "val/loss": ([3], [2.5])})
    names = [element.text for element in ElementTree.fromstring(svg).iter("tspan")]
    assert names == ["train/<loss>", "val/loss"]
    falling, dot = paths_of(svg)
    heights = [float(y) for y in re.findall(r" ([\d.]+)", falling)]
    assert heights == sorted(heights)
    assert len(heights) == 3
    assert dot.endswith("h0")


def test_a_chart_has_gaps_where_values_are_not_finite() -> None:
    (path,) = paths_of(draw_svg({"loss": ([1, 2, 3, 4, 5], [1.0, 2.0, NAN, INF, 3.0])}))
    assert re.sub(r"[\d. ]+", "", path) == "MhLMh"


def test_equal_values_are_a_line_in_the_middle() -> None:
    (path,) = paths_of(draw_svg({"loss": ([1, 2], [5.0, 5.0])}))
    assert len({*re.findall(r" ([\d.]+)", path)}) == 1


def test_without_two_points_there_is_no_chart() -> None:
    for steps, values in (([], []), ([1], [1.0]), ([1, 2], [NAN, 1.0]), ([1, 1], [1.0, 2.0])):
        assert draw_svg({"loss": (steps, values)}) == "", values
    assert draw_svg({}) == ""
