"""Tests of epochal.cli.pages.diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comparing import keep_code, make_run
from epochal.cli.pages.diff import describe_comparison
from epochal.records.compare import diff

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = {"hostname": "box", "python": "3.11", "packages": {"numpy": "2.1"}}
DATA = {"train": {"length": 9}}


def test_page_has_runs_summary_differences_and_equal_sections(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", {"optim.lr": 0.1}, best=0.5, machine=MACHINE)
    other = make_run(tmp_path / "other", {"optim.lr": 0.2}, machine=MACHINE)
    lines = "\n".join(describe_comparison(diff(one, other))).split("\n")
    assert lines == [
        "   run    tag  status    steps  time   best",
        "A  one    t    finished  0      2.0 s  0.5",
        "B  other  t    finished  0      2.0 s",
        "",
        "they differ in 1 parameter",
        "",
        "parameters: 1 parameter differs, 1 is the same",
        "  parameter  A    B    A set by    B set by",
        "  optim.lr   0.1  0.2  a.yaml:1:1  a.yaml:1:1",
        "",
        "seed: the same",
        "code: unknown, one of the runs recorded none",
        "packages: nothing differs, 4 are the same",
        "hardware: nothing differs, 1 is the same",
        "environment: unknown, A and B recorded none",
        "data: unknown, A and B recorded none",
        "metrics: nothing differs, 0 are the same",
        "curves: no common points",
    ]


def test_equal_runs_are_reported_as_equal(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one")
    assert "nothing differs" in list(describe_comparison(diff(one, one)))


def test_only_requested_sections_are_shown(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", {"seed": 1})
    other = make_run(tmp_path / "other", {"seed": 2, "optim.lr": 3})
    text = "\n".join(describe_comparison(diff(one, other), ("seed",)))
    assert "they differ in the seed\n" in text
    assert "parameters" not in text


def test_unexplained_curves_suggest_check_repro(tmp_path: Path) -> None:
    records = []
    for name, loss in (("one", 0.5), ("other", 0.4)):
        points = {"train/loss": {1: loss}}
        record = make_run(tmp_path / name, points=points, machine=MACHINE, data=DATA)
        keep_code(record, {"task.py": b"x\n"})
        records.append(record)
    *_, last = describe_comparison(diff(*records))
    assert last == "no difference explains the curves: try `epochal check FILE --repro`"


def test_more_runs_than_letters_have_names_too(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one")
    first = next(iter(describe_comparison(diff(*[one] * 28))))
    assert first.split("\n")[-1].startswith("R28  one")
