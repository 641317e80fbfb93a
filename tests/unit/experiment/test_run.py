"""Tests of several runs in a row, and of evaluating runs."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import epochal as ep
from epochal.checkpoint import load_weights, read_checkpoint
from epochal.errors import CheckpointError, ConfigError, RecordError, UntrustedCodeError
from epochal.experiment.run import evaluate_run, run_series
from epochal.records.folder.checkpoint_manifests import (
    find_best_checkpoint,
    find_checkpoints,
    rank_by_score,
)
from epochal.testing import TinyModel, TinyTask
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


def test_several_variants_and_the_base_can_be_named(shop: Path) -> None:
    for chosen, expected in {"base,all": [2, 2, 3], "long,base": [3, 2], "hot,hot": [2]}.items():
        results = ep.run("config.yaml", variant=chosen, no_file=True)
        assert isinstance(results, list)
        assert [result.epochs for result in results] == expected, chosen
    assert ep.run("config.yaml", variant="base", no_file=True).config["optim"]["lr"] == 0.05
    write(shop / "own.yaml", "$BASE: config.yaml\nvariants: {base: {optim.lr: 3.0}}\n")
    assert ep.run("own.yaml", variant="base", no_file=True).config["optim"]["lr"] == 3.0


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


def test_series_continues_after_a_run_that_calls_sys_exit(shop: Path) -> None:
    write(
        shop / "shop" / "leaves.py",
        """
        import sys
        import epochal as ep
        class Leaves(ep.Hook):
            def step_end(self, run):
                sys.exit(3)
        """,
    )
    write(shop / "leaves.yaml", "$BASE: config.yaml\nhooks: [{type: shop.leaves.Leaves}]\n")
    left, done = ep.run(["leaves.yaml", "config.yaml"], no_file=True, fast=True)
    assert (left.status, left.exit_code, done.status) == ("failed", 3, "finished")
    with pytest.raises(SystemExit):  # a single run raises it, as any other error
        ep.run("leaves.yaml", no_file=True, fast=True)


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
    sources: Any = ["config.yaml", "config.yaml", "missing.yaml"]
    with pytest.raises(KeyboardInterrupt):
        ep.run(sources, overrides=[hooks], no_file=True)
    results = ep.run(sources, overrides=[hooks], no_file=True, raise_errors=False)
    assert [result.status for result in results] == ["interrupted"] * 3
    assert {result.exit_code for result in results} == {130}
    assert [result.steps for result in results] == [1, 0, 0]
    text = "not started: an earlier run of the series was interrupted"
    assert [result.message == text for result in results] == [False, True, True]
    with pytest.raises(KeyboardInterrupt):
        ep.run("config.yaml", variant="base,all", overrides=[hooks], no_file=True)


def test_errors_of_a_single_config_are_raised(shop: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        ep.run("missing.yaml")
    with pytest.raises(KeyError, match="the shelf is empty"):
        ep.run("config.yaml", overrides=["task.type=shop.parts.Stumbling"])
    assert ep.run("missing.yaml", raise_errors=False).exit_code == 66


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


def test_a_newer_run_without_weights_is_named_when_last_leaves_it_out(
    trained: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert evaluate_run("last", "test", RUNS, no_file=True).ok
    assert "has no weights" not in caplog.text
    unlucky = ["task.type=shop.parts.Stumbling", "tag=shop"]
    failed = ep.run("config.yaml", overrides=unlucky, raise_errors=False).dir
    assert failed is not None
    for name in ("last", "shop"):
        caplog.clear()
        assert evaluate_run(name, "test", RUNS, no_file=True).ok
        text = f"{name}: {failed.name} has no weights, so it means {trained.name}"
        assert text in caplog.messages


def test_last_without_any_weights_is_an_error(shop: Path) -> None:
    ep.run("config.yaml", overrides=["task.type=shop.parts.Stumbling"], raise_errors=False)
    with pytest.raises(CheckpointError, match=r"has no weights; it is 'failed'"):
        evaluate_run("last", "test", RUNS)


def test_runs_are_evaluated_and_loaded_from_python(trained: Path) -> None:
    result = ep.test("last", weights="final", no_file=True)
    assert result.metrics["test/acc"] == ep.read(trained).last("val/acc").value
    assert result.weights == f"final of {trained.name}"
    model = ep.load("last", weights="final")
    assert not model.training
    batch = ep.predict("shop", weights="final", no_file=True).value[0]
    samples = TinyTask(num_samples=24, batch_size=4).test_loader
    assert torch.equal(model(next(iter(samples))["x"]), batch["logits"])
    with pytest.raises(RecordError, match="no such run"):
        ep.load("nonsense")
    with pytest.raises(ConfigError, match=r"model\.widht"):
        ep.load("last", overrides=["model.widht=3"])
    with pytest.raises(ConfigError, match="there is no choice 'weight'"):
        ep.test("last", weight="best")


def test_an_evaluation_of_a_trial_run_reads_all_data(shop: Path) -> None:
    for limits in ({"fast": True}, {"overrides": ["train.limit_eval_batches=1"]}):
        ep.run("config.yaml", **limits)
        for choices, batches in (({}, 6), ({"fast": True}, 3)):
            assert len(ep.predict("last", no_file=True, **choices).value) == batches, limits
        tested = ep.test("last", no_file=True)
        train = tested.config["train"]
        assert (train["limit_batches"], train["limit_eval_batches"]) == (None, None), limits
        overrides = ["train.limit_eval_batches=2"]
        tested = ep.test("last", no_file=True, overrides=overrides)
        assert tested.config["train"]["limit_eval_batches"] == 2


def test_the_model_holds_the_final_weights_and_the_result_loads_the_best(shop: Path) -> None:
    torch.manual_seed(0)
    model = TinyModel()
    changes = ["train.for=4ep", "monitor=-val/acc"]  # so that an early step is the best
    result = ep.Experiment("config.yaml", model=model, overrides=changes).fit()
    assert result.dir is not None
    final = load_weights(result.dir / "checkpoints" / "final.safetensors")
    assert all(torch.equal(final[name], one) for name, one in model.state_dict().items())
    (step,) = [at.step for at in rank_by_score(find_checkpoints(result.dir / "checkpoints"))[:1]]
    assert step == ep.read(result.dir).best("val/acc", "min").step != result.steps
    state, _ = read_checkpoint(result.dir / "checkpoints" / f"shop-{step}")
    assert result.load_best(model) is model
    best = state["model"]["weights"]
    assert all(torch.equal(best[name], one) for name, one in model.state_dict().items())
    assert not torch.equal(final["linear.weight"], best["linear.weight"])
    with pytest.raises(
        CheckpointError, match=r"its model came from Python.*\n.*ep\.recover\(model, 'runs"
    ):
        ep.load("last")


def test_an_evaluation_at_the_end_ranks_the_last_checkpoint(shop: Path) -> None:
    for length in ("2ep", "7st"):
        changes = ["train.eval_every=0", "train.eval_at_end=true", f"train.for={length}"]
        result = ep.run("config.yaml", overrides=changes, name=f"at-{length}")
        found, _ = find_best_checkpoint(result.dir / "checkpoints")
        assert found is not None, length
        assert (found.step, found.metrics["val/acc"]) == (result.steps, result.best), length
        assert ep.read(result.dir).series("val/acc")[0].tolist() == [result.steps], length


def test_the_best_weights_of_an_average_are_the_averaged_ones(shop: Path) -> None:
    changes = ["average={type: ema, decay: 0.5}", "monitor=+val_ema/acc"]
    result = ep.run("config.yaml", overrides=changes)
    assert result.ok, result.traceback
    tested = ep.test("last", no_file=True)
    assert "averaged" in tested.weights
    assert tested.metrics["test/acc"] == result.best
    assert tested.config["init_from"]["try_ema"] is True


def test_best_weights_that_were_not_kept_are_refused(shop: Path) -> None:
    result = ep.run("config.yaml", no_file=True, fast=True)
    with pytest.raises(CheckpointError, match="load_best: this run has no record"):
        result.load_best(TinyModel())
    result = ep.run("config.yaml", overrides=["checkpoint.keep_best=0"], fast=True)
    with pytest.raises(CheckpointError, match="no best weights: no checkpoint with its monitor"):
        result.load_best(TinyModel())
    result = ep.run("config.yaml", overrides=["train.folds=2"], fast=True)
    with pytest.raises(CheckpointError, match=r"its folds have(.*\n)*.*/folds/1"):
        result.load_best(TinyModel())
    assert result.value[0].load_best(TinyModel())


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
    table = {"20": "matches 2 runs", "nonsense": "no such run in runs", "": "no such run"}
    for name, message in table.items():
        with pytest.raises(RecordError, match=message):
            evaluate_run(name, "test", RUNS)


def test_a_record_without_its_config_is_refused(trained: Path) -> None:
    (trained / "config" / "expanded.yaml").unlink()
    with pytest.raises(CheckpointError, match=r"expanded\.yaml: is missing"):
        evaluate_run("last", "test", RUNS)


def test_the_project_is_found_through_the_record(
    trained: Path, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert evaluate_run(str(shop / trained), "test", RUNS, no_file=True, trust=True).ok
    assert len(run_folders(shop)) == 1


def test_code_outside_of_the_project_needs_trust(
    trained: Path, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = shop / trained
    for call in (ep.test, ep.predict, ep.load, ep.resume):
        with pytest.raises(UntrustedCodeError, match="if you trust that code, pass trust=True"):
            call(folder)
    assert isinstance(ep.load(folder, trust=True), torch.nn.Module)
    assert isinstance(ep.load(folder, user_dir=shop), torch.nn.Module)
    assert ep.predict(folder, user_dir=shop, no_file=True).ok
    assert ep.resume(folder, trust=True, epochs=3).epochs == 3


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


def test_overrides_that_are_no_list_are_refused(shop: Path) -> None:
    ep.run("config.yaml", overrides=["train.for=1st"])
    for overrides, expected in (
        ("train.for=2st", "is the text 'train.for=2st', not a list of texts"),
        ({"train.for": "2st", "seed": 1}, "is a mapping, not a list of texts"),
    ):
        for call in (
            partial(ep.run, "config.yaml"),
            partial(ep.Experiment, "config.yaml"),
            partial(ep.find_lr, "config.yaml"),
            partial(ep.resume, "last"),
            partial(ep.test, "last"),
        ):
            with pytest.raises(ConfigError) as caught:
                call(overrides=overrides)
            what, _, hint = str(caught.value).partition("\n  overrides=")
            assert what == f"overrides: {expected}"
            assert hint in ("['train.for=2st']", "['train.for=\"2st\"', 'seed=1']")


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
    ep.run("missing.yaml", raise_errors=False)
    assert "missing.yaml: no such file" in capsys.readouterr().err
    ep.run("config.yaml", overrides=["optim.lrr=1"], raise_errors=False)
    assert "did you mean 'lr'?" in capsys.readouterr().err
    with pytest.raises(KeyError, match="the shelf is empty"):
        ep.run("config.yaml", overrides=["task.type=shop.parts.Stumbling"], no_file=True)
    printed = capsys.readouterr().err
    assert printed.startswith("╭─ run failed: KeyError ─")
    assert printed.count("╭") == 1
    assert "shop/parts.py:" in printed


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
