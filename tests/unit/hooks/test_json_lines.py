"""JsonLines: the points of each step as one object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from epochal.engine.tracking.mirror import Entry
from epochal.engine.tracking.tracker import TrackedRun
from epochal.hooks.points_file import JsonLines
from tracked import Series, carry_out_tracked, recorded

if TYPE_CHECKING:
    from pathlib import Path


def test_lines_equal_the_record_bit_for_bit(tmp_path: Path) -> None:
    folder, result = carry_out_tracked(tmp_path, JsonLines(every="2st"))
    assert result.ok, result.message
    found: Series = {}
    for line in map(json.loads, (folder / "points.jsonl").read_text().splitlines()):
        step, when = line.pop("step"), line.pop("time")
        assert when > 0
        for name, value in line.items():
            assert step not in found.setdefault(name, {})
            found[name][step] = value
    assert found == recorded(folder)


def test_each_line_is_standard_json(tmp_path: Path) -> None:
    sink = JsonLines().open(TrackedRun(tmp_path, "tiny", "", ""))
    sink.write([Entry(3, 1.5, {"a": float("nan"), "b": 0.25}), Entry(4, 2.5, {"b": 0.5})])
    sink.close(has_failed=False)
    assert (tmp_path / "points.jsonl").read_text() == (
        '{"step":3,"time":1.5,"a":"$nan","b":0.25}\n{"step":4,"time":2.5,"b":0.5}\n'
    )


def test_the_description_names_the_file() -> None:
    assert JsonLines().describe(None) == "points.jsonl"
