"""The benchmark's arithmetic and tables, with made-up figures."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MODULES = ("figures", "overhead", "report", "rows", "segments", "work")


@pytest.fixture(scope="module")
def bench():
    """The modules of the benchmark, which is no package."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


def side(seconds: float, *, loss: float = 1.0) -> dict[str, float]:
    return {"wall": 2 * seconds, "cpu": seconds, "loss": loss, "norm": 3.0}


def process(*ratios: float, speed: float = 1e-3) -> dict:
    return {"pairs": [{"peer": side(ratio * speed), "hand": side(speed)} for ratio in ratios]}


def runs_of(row: str, ratio: float, *, case: str = "minimal") -> list[dict]:
    spread = (0.999, 1.0, 1.001, 1.0)
    return [
        {"case": case, "model": "tiny", "row": row, **process(*(ratio * one for one in spread))}
        for _ in range(6)
    ]


def table(bench, *runs: dict, case: str = "minimal") -> str:
    return "\n".join(bench.report.cell_report(case, "tiny", list(runs)))


def test_each_pair_is_compared_within_itself(bench) -> None:
    slow_and_fast = [process(1.1, 1.2, speed=5e-3), process(1.3, speed=1e-3)]
    summary = bench.figures.summarize(slow_and_fast)
    assert summary.cpu.value == pytest.approx(1.2)
    assert summary.wall.value == pytest.approx(1.2)
    assert summary.num_pairs == 3


def test_added_time_is_cpu_time_and_the_others_are_wall_clock(bench) -> None:
    summary = bench.figures.summarize([process(1.5)])
    assert summary.added_us == pytest.approx(500)
    assert (summary.step_us, summary.hand_us) == (pytest.approx(3000), pytest.approx(2000))


def test_interval_contains_the_median_and_is_reproducible(bench) -> None:
    values = [[1.0, 1.1, 1.2], [0.9, 1.0, 1.3], [1.1, 1.2, 1.0]]
    found = bench.figures.estimate(values)
    assert found.low <= found.value <= found.high
    assert found == bench.figures.estimate(values)


def test_equal_values_give_an_empty_interval(bench) -> None:
    found = bench.figures.estimate([[1.5] * 4] * 6)
    assert (found.low, found.value, found.high) == (1.5, 1.5, 1.5)


def test_processes_that_disagree_widen_the_interval(bench) -> None:
    mixed = [[1.0, 1.2] * 6] * 4
    apart = [[1.0] * 12, [1.2] * 12] * 2
    wide, narrow = bench.figures.estimate(apart), bench.figures.estimate(mixed)
    assert wide.high - wide.low >= narrow.high - narrow.low
    assert (wide.low, wide.high) == (1.0, 1.2)


@pytest.mark.parametrize("processes", [[[1.0] * 30], [[1.0], [1.1]]])
def test_one_process_or_a_few_pairs_give_no_interval(bench, processes) -> None:
    found = bench.figures.estimate(processes)
    assert found.low is None
    assert found.verdict(2.0) == "too few pairs"


@pytest.mark.parametrize(("target", "verdict"), [(1.2, "met"), (1.05, "open"), (0.9, "missed")])
def test_target_is_met_only_by_the_whole_interval(bench, target, verdict) -> None:
    assert bench.figures.Estimate(1.04, 1.0, 1.1).verdict(target) == verdict


def test_table_is_sorted_and_has_targets_for_epochal_only(bench) -> None:
    shown = table(bench, *runs_of("Ignite", 1.1), *runs_of("Epochal", 0.9), *runs_of("by hand", 1))
    lines = [line for line in shown.splitlines() if "yes" in line and "below" not in line]
    assert [line.split("  ")[0] for line in lines] == ["Epochal", "by hand", "Ignite"]
    assert lines[0].endswith("1.03 met")
    assert "met" not in lines[2]
    assert "below every peer: yes" in shown


def test_peers_with_overlapping_intervals_are_named(bench) -> None:
    shown = table(bench, *runs_of("Ignite", 0.9), *runs_of("Epochal", 0.9), *runs_of("by hand", 1))
    assert "not shown for Ignite" in shown


def test_control_ratio_other_than_one_is_reported(bench) -> None:
    assert "control FAILED" in table(bench, *runs_of("by hand", 1.1))
    assert "FAILED" not in table(bench, *runs_of("by hand", 1.0))


def test_different_loss_is_an_error(bench) -> None:
    runs = runs_of("Fabric", 1.1)
    runs[3]["pairs"][2]["peer"]["loss"] = 1.5
    assert "ERROR 5e-01" in table(bench, *runs)


def test_fused_optimizer_may_round_differently(bench) -> None:
    runs = runs_of("Epochal", 0.5, case="as-user")
    runs[0]["pairs"][0]["peer"]["loss"] = 1.0 + 1e-7
    assert "to 1e-07" in table(bench, *runs, case="as-user")


def test_peer_that_cannot_run_is_named_with_the_reason(bench) -> None:
    broken = {"case": "minimal", "model": "tiny", "row": "Composer", "error": "a\nno such thing"}
    assert "Composer: not run: no such thing" in table(bench, broken)
    mostly = [*runs_of("Composer", 2.5), broken]
    assert "Composer: 1 of 7 processes failed: no such thing" in table(bench, *mostly)


def test_first_step_is_compared_with_plain_torch_in_the_same_round(bench) -> None:
    starts = [
        {"row": row, "round": number, "import": 0.5, "first_step": seconds, "peak_bytes": 3e8}
        for number, pair in enumerate([(2.0, 2.1), (4.0, 4.2), (1.0, 1.3)])
        for row, seconds in zip(("by hand", "Epochal"), pair, strict=True)
    ]
    circumstances = {"date": "today", "machine": "a machine", "versions": {"torch": "2"}}
    shown = bench.report.full_report({**circumstances, "runs": [], "starts": starts})
    (line,) = [line for line in shown.splitlines() if line.startswith("Epochal ")]
    assert line.split() == ["Epochal", "0.500", "2.10", "+0.20", "300", "3", "unknown"]


def test_saved_report_replaces_only_the_older_one(bench, tmp_path) -> None:
    kept = tmp_path / "RESULTS.md"
    kept.write_text("# Results\n\n## Start-up\n\nfast\n", encoding="utf-8")
    heading = bench.report.HEADING
    bench.report.keep(f"{heading}, 1\n\nold\n", kept)
    kept.write_text(kept.read_text(encoding="utf-8") + "\n## GPU\n\nfaster\n", encoding="utf-8")
    bench.report.keep(f"{heading}, 2\n\nnew\n", kept)
    text = kept.read_text(encoding="utf-8")
    assert text.split("## ")[1:] == [
        "Start-up\n\nfast\n\n",
        f"{heading[3:]}, 2\n\nnew\n\n",
        "GPU\n\nfaster\n",
    ]


def test_every_round_has_every_row_and_another_first_row(bench) -> None:
    turns = list(bench.overhead.in_turn(["a", "b", "c"], 2))
    assert turns == [(0, "a"), (0, "b"), (0, "c"), (1, "b"), (1, "c"), (1, "a")]


def test_every_row_has_an_adapter(bench) -> None:
    peers = {row.peer for rows in bench.rows.ROWS.values() for row in rows}
    assert len(peers) == 9
    assert all((BENCHMARKS / "peers" / f"{peer}.py").exists() for peer in peers)


def test_older_figures_stay_unless_measured_again(bench, tmp_path) -> None:
    path = tmp_path / "figures.json"
    for row in ("a", "b"):
        bench.overhead.Results(path).add("runs", {"row": row, "round": 0})
    results = bench.overhead.Results(path)
    results.forget("runs", row="a")
    (left,) = results.data["runs"]
    assert (left["row"], left["round"]) == ("b", 0)


def test_figures_keep_the_commit_that_was_measured(bench, tmp_path, monkeypatch) -> None:
    results = bench.overhead.Results(tmp_path / "figures.json")
    monkeypatch.setattr(bench.overhead, "find_commit", lambda: "c" * 40)
    results.add("runs", {"row": "a", "round": 0})
    assert results.data["runs"][0]["commit"] == "c" * 40


def test_commit_is_that_of_the_repository(bench, monkeypatch) -> None:
    assert len(bench.overhead.find_commit().rstrip("+")) in (0, 40)
    monkeypatch.setenv("PATH", "")
    assert bench.overhead.find_commit() == ""


def test_figures_of_several_commits_are_marked(bench) -> None:
    own = [{**run, "commit": "a" * 40} for run in runs_of("Epochal", 0.9)]
    peer = [{**run, "commit": "b" * 40 + "+"} for run in runs_of("Ignite", 1.1)]
    shown = table(bench, *own, *peer)
    assert " aaaaaaaaa " in shown
    assert " bbbbbbbbb+" in shown
    assert "SEVERAL COMMITS" in shown
    assert "SEVERAL COMMITS" not in table(bench, *own)


def train_by_hand(job) -> None:
    for x, y in job.train_loader:
        job.optimizer.zero_grad()
        nn.functional.cross_entropy(job.model(x), y).backward()
        job.optimizer.step()


def test_segments_begin_with_the_same_weights_and_end_with_the_same_result(bench) -> None:
    segments = bench.segments.Segments("tiny", "minimal", opaque=False, steps=10)
    opaque = bench.segments.Segments("tiny", "minimal", opaque=True, steps=10)
    found = [one.train(train_by_hand) for one in (segments, segments, opaque)]
    assert len({(one["loss"], one["norm"]) for one in found}) == 1


def test_only_steps_after_the_first_fifth_are_timed(bench) -> None:
    segments = bench.segments.Segments("tiny", "minimal", opaque=False, steps=10)
    jobs = []

    def train(job) -> None:
        jobs.append(job)
        train_by_hand(job)

    segments.train(train)
    assert [(job.model.watch.marks, job.steps) for job in jobs] == [((2, 9), 7)]


def test_alternating_trainings_end_like_separate_ones(bench) -> None:
    segments = bench.segments.Segments("mlp", "minimal", opaque=False, steps=10)
    assert segments.work.in_turns
    alone = segments.train(train_by_hand)
    pair = segments.train_pair(train_by_hand, train_by_hand, ours_first=False)
    assert {(one["loss"], one["norm"]) for one in (alone, *pair.values())} == {
        (alone["loss"], alone["norm"])
    }


def test_missing_steps_are_noticed(bench) -> None:
    segments = bench.segments.Segments("tiny", "minimal", opaque=False, steps=10)
    with pytest.raises(RuntimeError, match="0 forward passes instead of 10"):
        segments.train(lambda job: None)


@pytest.mark.parametrize("name", ["tiny", "mlp", "gpt-mini"])
def test_classes_are_dimension_one_of_every_model(bench, name) -> None:
    work = bench.work.WORKS[name]
    x, y = work.draw(2)
    scores = work.build()(x)
    assert scores.shape == (2, work.classes, *y.shape[1:])
    assert torch.isfinite(nn.functional.cross_entropy(scores, y))
