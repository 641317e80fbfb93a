"""Tests of several runs in a row, and of evaluating runs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import epochal as ep
from epochal.errors import CheckpointError, ConfigError, RecordError
from epochal.experiment.run import evaluate_run, run_series
from small_project import forgetting, run_folders, write, write_shop

RUNS = Path("runs")


def test_one_source_gives_one_result_and_a_list_gives_a_list(shop: Path) -> None:
    assert isinstance(ep.run("config.yaml", no_file=True, fast=True), ep.RunResult)
    results = ep.run(["config.yaml"], no_file=True, fast=True)
    assert [result.status for result in results] == ["finished"]


def test_failure_does_not_stop_the_others_and_order_is_kept(shop: Path) -> None:
    write(shop / "second.yaml", "$BASE: config.yaml\ntask: {type: shop.parts.Stumbling}\n")
    write(shop / "third.yaml", "$BASE: config.yaml\ntag: third\n")
    sources = ["config.yaml", "second.yaml", "missing.yaml", "third.yaml"]
    results = ep.run(sources, no_file=True, fast=True)
    assert [result.status for result in results] == ["finished", "failed", "failed", "finished"]
    assert [result.exit_code for result in results] == [0, 1, 66, 0]
    assert [results[0].config["tag"], results[3].config["tag"]] == ["shop", "third"]


def test_all_variants_run_in_the_order_of_the_file(shop: Path) -> None:
    results = ep.run("config.yaml", variant="all", no_file=True)
    assert isinstance(results, list)
    assert [result.epochs for result in results] == [2, 3]
    assert [result.config["optim"]["lr"] for result in results] == [0.5, 0.05]


def test_only_the_first_run_counts_the_time_of_imports(shop: Path) -> None:
    begun = time.perf_counter() - 100
    first, second = ep.run(["config.yaml"] * 2, begun=begun, no_file=True)
    assert first.times["start-up/imports"] >= 100
    assert "start-up/imports" not in second.times
    assert second.seconds < first.seconds


def test_file_without_variants_runs_once_when_all_are_asked_for(shop: Path) -> None:
    write(shop / "plain.yaml", "$BASE: config.yaml\nvariants: $delete\n")
    assert len(ep.run("plain.yaml", variant="all", no_file=True, fast=True)) == 1


def test_results_come_as_runs_end(shop: Path) -> None:
    series = run_series(["config.yaml", "missing.yaml"], no_file=True, fast=True)
    assert next(series).ok
    assert not next(series).ok
    with pytest.raises(StopIteration):
        next(series)


def test_interrupt_ends_the_whole_series(shop: Path) -> None:
    write(
        shop / "shop" / "stops.py",
        """
        import epochal as ep
        class Stops(ep.Hook):
            def step_end(self, run):
                raise KeyboardInterrupt
        """,
    )
    hooks = "hooks=[{type: shop.stops.Stops}]"
    results = ep.run(["config.yaml", "config.yaml"], overrides=[hooks], no_file=True)
    assert [result.status for result in results] == ["interrupted"]
    assert results[0].exit_code == 130


def test_errors_are_raised_by_choice(shop: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        ep.run("missing.yaml", raise_errors=True)
    with pytest.raises(KeyError, match="the shelf is empty"):
        ep.run("config.yaml", overrides=["task.type=shop.parts.Stumbling"], raise_errors=True)


def test_two_projects_with_the_same_package_name_are_not_mixed(shop: Path, tmp_path: Path) -> None:
    """Two projects in one series must not get each other's code."""
    with forgetting(tmp_path):
        other = write_shop(tmp_path / "other")
        results = ep.run(["config.yaml", other / "config.yaml"], no_file=True, fast=True)
    assert results[0].ok
    assert not results[1].ok
    assert "shop" in results[1].message


@pytest.fixture
def trained(shop: Path) -> Path:
    result = ep.run("config.yaml")
    assert result.dir is not None
    return result.dir


def test_weights_of_a_run_are_evaluated_with_its_config(trained: Path) -> None:
    result = evaluate_run(trained.name, "test", RUNS)
    assert result.ok, result.traceback
    saved = json.loads((trained / "result.json").read_text())
    # The three loaders of the small task hold the same points.
    assert result.metrics["test/acc"] == saved["metrics"]["val/acc"]
    assert result.dir is not None
    assert result.dir != trained


def test_evaluation_reads_neither_optimizer_nor_schedule(shop: Path) -> None:
    trained = ep.run("config.yaml", overrides=["schedule={type: cosine}"])
    assert trained.dir is not None
    result = evaluate_run(trained.dir.name, "test", RUNS)
    assert result.ok, result.traceback
    assert not {"optim", "schedule"} & result.config.keys()


def test_last_is_the_newest_run_with_weights(trained: Path) -> None:
    for _ in range(2):
        assert evaluate_run("last", "test", RUNS).ok
    result = evaluate_run("last", "predict", RUNS, no_file=True)
    assert str(trained) in result.config["init_from"]
    assert evaluate_run(str(trained), "test", Path("elsewhere"), no_file=True).ok


def test_last_without_any_weights_is_an_error(shop: Path) -> None:
    ep.run("config.yaml", overrides=["task.type=shop.parts.Stumbling"])
    with pytest.raises(CheckpointError, match=r"has no weights to test, it is 'failed'"):
        evaluate_run("last", "test", RUNS)


def test_typed_overrides_win(trained: Path, shop: Path) -> None:
    result = evaluate_run("last", "test", RUNS, overrides=["init_from=other.safetensors"])
    assert "no such file" in result.message
    assert "other.safetensors" in result.message
    result = evaluate_run("last", "test", RUNS, overrides=["task.num_samples=8"], no_file=True)
    assert result.config["task"]["num_samples"] == 8


def test_predictions_use_exactly_the_saved_weights(trained: Path) -> None:
    one = evaluate_run("last", "predict", RUNS, no_file=True).value
    two = evaluate_run("last", "predict", RUNS, no_file=True).value
    assert all(torch.equal(a["logits"], b["logits"]) for a, b in zip(one, two, strict=True))


def test_a_run_in_an_exact_folder_is_evaluated_below_it(shop: Path) -> None:
    changes = ["record.log_dir=mine", "record.exact=true"]
    assert ep.run("config.yaml", overrides=changes).dir == Path("mine")
    result = evaluate_run("mine", "test", RUNS)
    assert result.ok, result.traceback
    assert result.dir is not None
    assert Path("mine/test") in result.dir.parents


def test_a_name_that_fits_no_run_or_several_is_an_error(trained: Path) -> None:
    assert ep.run("config.yaml", fast=True).ok
    table = {"20": "fits 2 runs", "nonsense": "no such run in runs", "": "no such run"}
    for name, message in table.items():
        with pytest.raises(RecordError, match=message):
            evaluate_run(name, "test", RUNS)


def test_a_record_without_its_config_is_refused(trained: Path) -> None:
    (trained / "config" / "expanded.yaml").unlink()
    with pytest.raises(CheckpointError, match="has no expanded config"):
        evaluate_run("last", "test", RUNS)


def test_the_project_is_found_through_the_record(
    trained: Path, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert evaluate_run(str(shop / trained), "test", RUNS, no_file=True).ok
    assert len(run_folders(shop)) == 1


def test_all_variants_of_a_missing_file_do_not_stop_the_others(shop: Path) -> None:
    results = ep.run(["missing.yaml", "config.yaml"], variant="all", no_file=True, fast=True)
    assert [result.exit_code for result in results] == [66, 0, 0]


def test_all_variants_of_a_python_config_run(shop: Path) -> None:
    write(
        shop / "conf.py",
        "config = {'$BASE': 'config.yaml', 'variants': {'one': {'seed': 1}}}\n",
    )
    choices = {"no_file": True, "fast": True, "allow_python": True}
    results = ep.run("conf.py", variant="all", **choices)  # type: ignore[call-overload]
    assert sorted(result.config["seed"] for result in results) == [0, 0, 1]


def test_unknown_choices_are_refused_at_once(shop: Path) -> None:
    table: list[tuple[dict[str, Any], str]] = [
        ({"nofile": True}, "there is no choice 'nofile' for a run\n  did you mean 'no_file'?"),
        ({"optim": {}}, "optim: is a section of the config, not a choice for a run"),
        ({"a": 1, "b": 2}, "there is no choice 'b'"),
    ]
    for choices, message in table:
        with pytest.raises(ConfigError) as caught:
            ep.run("config.yaml", **choices)
        assert message in str(caught.value)
        with pytest.raises(ConfigError, match="there is no choice"):
            ep.Experiment("config.yaml", choices=choices)  # type: ignore[arg-type]  # on purpose
    assert not (shop / "runs").exists()


def test_failures_are_printed_to_standard_error(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ep.run("missing.yaml")
    assert "missing.yaml: no such file" in capsys.readouterr().err
    ep.run("config.yaml", overrides=["optim.lrr=1"])
    assert "did you mean 'lr'?" in capsys.readouterr().err
    ep.run("config.yaml", overrides=["task.type=shop.parts.Stumbling"], no_file=True)
    printed = capsys.readouterr().err
    assert printed.startswith("╭─ run failed: KeyError ─")
    assert printed.count("╭") == 1
    assert "shop/parts.py:" in printed


def test_raised_errors_are_not_printed(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for change in ("optim.lrr=1", "task.type=shop.parts.Stumbling"):
        with pytest.raises((ConfigError, KeyError)):
            ep.run("config.yaml", overrides=[change], no_file=True, raise_errors=True)
    assert capsys.readouterr().err == ""


READS = """
from shop.parts import Points
from pathlib import Path

class Reads(Points):
    def __init__(self, *, path: str) -> None:
        super().__init__()
        Path(path).read_text()
"""


def test_paths_of_a_run_that_is_tested_elsewhere_are_explained(
    shop: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(shop / "shop" / "reads.py", READS)
    (shop / "points.txt").write_text("data")
    task = "task={type: shop.reads.Reads, path: points.txt}"
    result = ep.run("config.yaml", overrides=[task], fast=True)
    assert result.ok
    evaluate_run("last", "test", RUNS)
    assert "is relative to" not in caplog.text
    (shop / "elsewhere").mkdir()
    monkeypatch.chdir(shop / "elsewhere")
    evaluate_run("last", "test", Path("../runs"))
    assert f"task.path: 'points.txt' is relative to {shop}, where the run" in caplog.text
    assert f"run `cd {shop}` first" in caplog.text
