"""Tests of epochal.cli.pages.diff."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from comparing import make_run
from epochal.cli.pages.diff import DiffView, describe_curves, describe_metrics, describe_replicates
from epochal.records.compare import diff
from epochal.records.compare.curves import CurveComparison, Divergence
from epochal.records.compare.metrics import MetricComparison

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.folder.reader import RunRecord

PAIR = DiffView(names=("A", "B"), words=("a", "b"))
THREE = DiffView(names=("A", "B", "C"), words=("a", "b", "c"))


def test_metrics_of_two_runs_have_deltas_and_a_verdict() -> None:
    scores = [
        MetricComparison("val/acc", "max", (0.5, 0.75), (0.5, 0.75)),
        MetricComparison("val/loss", "min", (2.0, 4.0), (1.0, 1.5)),
        MetricComparison("speed", None, (1.0, 3.0), (None, None)),
        MetricComparison("lr", None, (0.1, 0.1), (None, None)),
    ]
    assert list(describe_metrics(scores, PAIR)) == [
        "metrics: 3 metrics differ, 1 is the same",
        "  metric    A last  B last  delta  A best  B best  delta  B is",
        "  val/acc   0.5     0.75    +0.25  0.5     0.75    +0.25  better",
        "  val/loss  2       4       +2     1       1.5     +0.5   worse",
        "  speed     1       3       +2     -       -",
    ]


def test_difference_in_the_last_bits_has_no_verdict() -> None:
    [_, _, line] = describe_metrics(
        [MetricComparison("l", "min", (1.0, 1.0), (1.0, 1.0 + 1e-12))], PAIR
    )
    assert line.endswith("+1e-12")


def test_verdicts_are_coloured_on_a_terminal() -> None:
    view = DiffView(names=("A", "B"), words=(), has_colours=True)
    [_, _, line] = describe_metrics([MetricComparison("l", "min", (1.0, 2.0), (1.0, 2.0))], view)
    assert line.endswith("\x1b[31mworse\x1b[0m")


def test_metrics_of_three_runs_are_a_table() -> None:
    lines = list(
        describe_metrics([MetricComparison("l", "min", (1.0, 2.0, None), (1.0, 2.0, None))], THREE)
    )
    assert lines[1:] == [
        "  metric  A last  B last  C last  A best  B best  C best",
        "  l       1       2       -       1       2       -",
    ]


def test_many_metrics_are_cut_and_same_metrics_are_one_line() -> None:
    many = [MetricComparison(f"m{i}", None, (1.0, 2.0), (None, None)) for i in range(20)]
    assert list(describe_metrics(many, PAIR))[-1].startswith("  8 more metrics: ")
    same = [MetricComparison("m", None, (1.0, 1.0), (None, None))]
    assert list(describe_metrics(same, PAIR)) == ["metrics: nothing differs, 1 is the same"]


def curves(
    bitwise: Divergence | None = None, beyond: Divergence | None = None, **more: Any
) -> CurveComparison:
    facts = {"num_series": 2, "num_points": 40, "same_until": 20, **more}
    return CurveComparison(bitwise=bitwise, beyond=beyond, **facts)


def test_divergence_is_shown_with_metrics_values_and_resumes() -> None:
    first = Divergence(30, ("train/loss", "a", "b", "c", "d"), (0.51234, 0.51239))
    later = Divergence(50, ("train/loss",), (0.5, 0.6))
    found = curves(first, later, resumed=((), (20,)))
    assert list(describe_curves([found], 0.01, PAIR)) == [
        "curves: diverge by step 30",
        "  A and B: the same bit for bit until step 20",
        "    first by step 30: train/loss (A 0.5123, B 0.5124); also a, b, c and 1 more",
        "    by more than 1 % by step 50: train/loss (A 0.5, B 0.6)",
        "    B resumed from a checkpoint at step 20",
    ]


def test_values_have_enough_digits_to_differ() -> None:
    found = curves(Divergence(1, ("x",), (0.1, 0.1 + 1e-16)), same_until=None)
    lines = list(describe_curves([found], 0.01, PAIR))
    assert lines[1] == "  A and B: different from the first point on"
    assert lines[2] == "    first by step 1: x (A 0.1, B 0.1000000000000001)"
    assert lines[3] == "    never by more than 1 %"


def test_differences_below_the_shown_digits_are_reported() -> None:
    found = curves(Divergence(1, ("x",), (math.nan, math.nan)))
    assert "x (A nan, B nan)" in list(describe_curves([found], 0.01, PAIR))[2]


def test_immediate_divergence_is_one_line() -> None:
    parting = Divergence(5, ("l",), (1.0, 2.0))
    *_, last = describe_curves([curves(parting, parting)], 0.05, PAIR)
    assert last == "    by more than 5 % at the same step"


def test_equal_curves_are_one_line() -> None:
    assert list(describe_curves([curves()], 0.01, PAIR)) == [
        "curves: the same bit for bit at 40 points"
    ]
    [line] = describe_curves([curves(num_points=0)], 0.01, PAIR)
    assert line == "curves: no common points"
    [line] = describe_curves([curves(num_uneven=3)], 0.01, PAIR)
    assert line.endswith("at 40 points; 3 points of training are means over different steps")


def test_three_runs_are_each_compared_with_the_first() -> None:
    found = [curves(), curves(Divergence(5, ("l",), (1.0, 2.0))), curves(num_points=0)]
    view = DiffView(names=("A", "B", "C", "D"), words=())
    lines = list(describe_curves(found, 0.01, view))
    assert lines[1] == "  A and B: the same bit for bit at 40 points"
    assert lines[2] == "  A and C: the same bit for bit until step 20"
    assert lines[-1] == "  A and D: no common points"


def seeded(path: Path, seed: int, acc: float, lr: float = 0.1, **facts: Any) -> RunRecord:
    config = {"seed": seed, "optim.lr": lr}
    return make_run(path, config, metrics={"train/loss": 1.0, "val/acc": acc}, best=acc, **facts)


def test_means_of_both_groups_are_shown(tmp_path: Path) -> None:
    one = seeded(tmp_path / "1", 1, 0.90)
    seeded(tmp_path / "2", 2, 0.92)
    other = seeded(tmp_path / "3", 1, 0.80, lr=0.2)
    found = diff(one, other, root=tmp_path)
    assert list(describe_replicates(found, PAIR)) == [
        "",
        "replicates: means over runs that differ only by seed",
        "  mean ± 95 % interval  A (2)        B (1)",
        "  best                  0.91 ± 0.13  0.8",
        "  val/acc               0.91 ± 0.13  0.8",
        "  train/loss            1 ± 0        1",
    ]


def test_runs_of_one_group_share_its_mean(tmp_path: Path) -> None:
    one, other = seeded(tmp_path / "1", 1, 0.90), seeded(tmp_path / "2", 2, 0.92)
    seeded(tmp_path / "3", 3, 0.5, status="failed")
    lines = list(describe_replicates(diff(one, other, root=tmp_path), PAIR))
    assert lines[1] == "replicates: they differ only by seed"
    assert lines[2].split("  ")[-1] == "mean of 2"
    assert lines[-1] == "  1 run left out: 1 failed"


def test_runs_of_one_group_may_differ_by_more_than_seed(
    tmp_path: Path,
) -> None:
    runs = [seeded(tmp_path / str(seed), seed, 0.9) for seed in (1, 2)]
    runs.append(make_run(tmp_path / "3", {"seed": 2, "optim.lr": 0.1}, metrics={"val/acc": 0.9}))
    for one, other in ((runs[1], runs[2]), (runs[2], runs[1])):
        lines = list(describe_replicates(diff(one, other, root=tmp_path), PAIR))
        assert lines[1] == "replicates: means over runs that differ only by seed"
        assert lines[-1] == "  1 run left out: 1 with a repeated seed"


def test_best_values_of_different_metrics_are_not_compared(tmp_path: Path) -> None:
    one = seeded(tmp_path / "1", 1, 0.90)
    seeded(tmp_path / "2", 2, 0.92)
    other = seeded(tmp_path / "3", 1, 0.80, lr=0.2, monitor="val/loss")
    lines = list(describe_replicates(diff(one, other, root=tmp_path), PAIR))
    assert [line.split()[0] for line in lines[3:]] == ["val/acc", "train/loss"]


def test_runs_left_out_are_counted_by_status(tmp_path: Path) -> None:
    one, other = seeded(tmp_path / "1", 1, 0.90), seeded(tmp_path / "2", 2, 0.92)
    for name, seed, status in (("3", 3, "failed"), ("4", 4, "failed"), ("5", 5, "interrupted")):
        seeded(tmp_path / name, seed, 0.5, status=status)
    seeded(tmp_path / "6", 2, 0.92)
    lines = list(describe_replicates(diff(one, other, root=tmp_path), PAIR))
    why = "2 failed, 1 interrupted, 1 with a repeated seed"
    assert lines[-1] == f"  4 runs left out: {why}"


def test_replicates_without_results_are_not_shown(tmp_path: Path) -> None:
    one, other = make_run(tmp_path / "1", {"seed": 1}), make_run(tmp_path / "2", {"seed": 2})
    assert list(describe_replicates(diff(one, other, root=tmp_path), PAIR)) == []


def test_no_section_without_replicates(tmp_path: Path) -> None:
    one, other = seeded(tmp_path / "1", 1, 0.9), seeded(tmp_path / "2", 1, 0.9, lr=0.2)
    assert list(describe_replicates(diff(one, other, root=tmp_path), PAIR)) == []
