"""Tests of cross validation: means, records, failures, resuming."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import epochal as ep
from epochal.errors import ConfigError
from epochal.experiment.cross_validation import copy_parts, sample_std, summarize_folds
from epochal.records import find_runs, read_run
from epochal.testing import TinyModel, TinyTask
from small_project import forgetting, write, write_shop

FOLDS = ["train.folds=3", "train.for=2ep", "monitor=+val/acc"]


def fold_dirs(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "folds").iterdir())


def test_each_fold_is_a_run_inside_the_record_of_the_whole(shop: Path) -> None:
    result = ep.run("config.yaml", overrides=FOLDS)
    assert (result.status, result.reason, len(result.value)) == ("finished", "completed", 3)
    assert [run.path for run in find_runs(Path("runs"))] == [result.dir]
    assert fold_dirs(result.dir) == ["1", "2", "3"]
    record = read_run(result.dir)
    assert record.summary.status == "finished"
    assert [fold.summary.status for fold in record.folds] == ["finished"] * 3
    assert [fold.expanded["train"]["fold"] for fold in record.folds] == [1, 2, 3]
    assert [fold.expanded["tag"] for fold in record.folds] == [f"shop-fold{n}" for n in (1, 2, 3)]
    assert record.damage == ()


def test_the_result_has_means_and_deviations(shop: Path) -> None:
    result = ep.run("config.yaml", overrides=FOLDS)
    values = [fold.metrics["val/acc"] for fold in result.value]
    assert len(set(values)) > 1
    assert result.metrics["val/acc"] == pytest.approx(sum(values) / 3)
    assert result.spread["val/acc"] == pytest.approx(torch.tensor(values).std().item())
    bests = [fold.best for fold in result.value]
    assert (result.best, result.spread["best"]) == (
        pytest.approx(sum(bests) / 3),
        pytest.approx(torch.tensor(bests).std().item()),
    )
    assert result.steps == sum(fold.steps for fold in result.value) == 3 * 2 * 4
    assert result.seconds == pytest.approx(sum(fold.seconds for fold in result.value))
    assert result.seconds == pytest.approx(sum(result.times.values()))
    kept = json.loads((result.dir / "result.json").read_text())
    assert kept["metrics"]["val/acc"] == result.metrics["val/acc"]
    assert kept["spread"] == result.spread


def test_every_sample_is_validated_in_exactly_one_fold(shop: Path) -> None:
    write(
        shop / "shop" / "seen.py",
        """
        import epochal as ep

        KEPT = {"train": [], "val": []}

        class Seen(ep.Hook):
            def epoch_start(self, run, split):
                rows = [tuple(row["x"].tolist()) for row in run.task.__dict__[
                    f"{split}_loader"].dataset]
                KEPT[split].append(frozenset(rows))
        """,
    )
    overrides = ["train.folds=3", "train.for=1ep", "train.sanity_batches=0"]
    overrides.append("hooks=[shop.seen.Seen]")
    assert ep.run("config.yaml", overrides=overrides, no_file=True).ok
    from shop.seen import KEPT  # type: ignore[import-not-found]  # written above

    train, val = KEPT["train"], KEPT["val"]
    assert [len(part) for part in train] == [16] * 3
    assert len(frozenset().union(*val)) == sum(map(len, val)) == 24
    assert all(not one & other for one, other in zip(train, val, strict=True))


def test_a_fold_that_runs_alone_is_the_same_bit_for_bit(shop: Path) -> None:
    whole = ep.run("config.yaml", overrides=FOLDS, no_file=True)
    alone = ep.run("config.yaml", overrides=[*FOLDS, "train.fold=2"], no_file=True)
    assert alone.metrics == whole.value[1].metrics
    assert alone.spread == {}


def test_a_checkpoint_folder_has_one_folder_per_cross_validation(shop: Path) -> None:
    overrides = [*FOLDS, f"checkpoint.dir={shop / 'kept'}"]
    results = [ep.run("config.yaml", overrides=overrides) for _ in range(2)]
    assert all(result.ok for result in results)
    kept = {str(path.relative_to(shop / "kept")) for path in (shop / "kept").glob("*/*")}
    assert kept == {f"{result.dir.name}/{n}" for result in results for n in (1, 2, 3)}


def test_nothing_is_written_without_a_record(shop: Path) -> None:
    assert ep.run("config.yaml", overrides=FOLDS, no_file=True).dir is None
    assert not (shop / "runs").exists()


def test_a_failed_fold_ends_the_cross_validation_and_is_named(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        shop / "shop" / "third.py",
        """
        import epochal as ep
        class Fails(ep.Hook):
            def run_start(self, run):
                if run.config["train"]["fold"] == 3:
                    raise RuntimeError("the third one")
        """,
    )
    failing = [*FOLDS, "hooks=[shop.third.Fails]"]
    result = ep.run("config.yaml", overrides=failing, raise_errors=False)
    assert (result.status, result.exception_type) == ("failed", "RuntimeError")
    assert result.message == "fold 3 of 3: the third one"
    assert result.times["steps"] > 0, "those of the first two"
    assert read_run(result.dir).summary.status == "failed"
    assert capsys.readouterr().err.count("run failed") == 1
    with pytest.raises(RuntimeError, match="the third one"):
        ep.run("config.yaml", overrides=failing)
    statuses = [run.status for run in find_runs(Path("runs"))]
    assert statuses == ["failed", "failed"]


def test_more_folds_than_samples_are_refused_before_training(shop: Path) -> None:
    result = ep.run("config.yaml", overrides=["train.folds=25"], raise_errors=False)
    assert (result.status, result.reason, result.steps) == ("failed", "config", 0)
    assert result.message.startswith("train.folds: 25 folds of 24 samples")


STOPS = """
import os
import signal
import epochal as ep
class Stops(ep.Hook):
    def step_end(self, run):
        at = os.environ.get("STOP_AT")
        if at and f"{run.config['train']['fold']}:{run.step}" == at:
            how = os.environ["STOP_HOW"]
            if how == "failed":
                raise RuntimeError("gone")
            os.kill(os.getpid(), signal.SIGINT if how == "interrupted" else signal.SIGTERM)
"""


STOPPABLE = [*FOLDS, "hooks=[shop.stops.Stops]", "checkpoint.every=3st"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> ep.RunResult:
    """The result of a run that nothing stops."""
    folder = write_shop(tmp_path_factory.mktemp("undisturbed") / "project")
    write(folder / "shop" / "stops.py", STOPS)
    with pytest.MonkeyPatch.context() as patch, forgetting(folder):
        patch.chdir(folder)
        return ep.run("config.yaml", overrides=STOPPABLE, no_file=True, raise_errors=True)


@pytest.mark.parametrize(
    ("at", "how"),
    [("1:1", "failed"), ("2:1", "interrupted"), ("2:5", "preempted"), ("3:7", "failed")],
)
def test_a_cross_validation_resumes_at_the_unfinished_fold(
    shop: Path, undisturbed: ep.RunResult, monkeypatch: pytest.MonkeyPatch, at: str, how: str
) -> None:
    write(shop / "shop" / "stops.py", STOPS)
    monkeypatch.setenv("STOP_AT", at)
    monkeypatch.setenv("STOP_HOW", how)
    first = ep.run("config.yaml", overrides=STOPPABLE, raise_errors=False)
    assert first.status == how
    assert read_run(first.dir).summary.status == how
    fold = int(at[0])
    before = {
        n: (first.dir / "folds" / str(n) / "result.json").read_bytes() for n in range(1, fold)
    }
    monkeypatch.setenv("STOP_AT", "")
    result = ep.resume(first.dir)
    assert (result.status, result.dir) == ("finished", first.dir)
    assert result.metrics == undisturbed.metrics
    assert result.spread == undisturbed.spread
    for number, content in before.items():
        assert (first.dir / "folds" / str(number) / "result.json").read_bytes() == content
    record = read_run(first.dir)
    assert (record.summary.status, record.summary.attempt, record.damage) == ("finished", 1, ())
    assert len(record.series("val/acc")[0]) == 3


def test_later_folds_of_a_resumed_cross_validation_show_no_list_of_defaults(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(shop / "shop" / "stops.py", STOPS)
    monkeypatch.setenv("STOP_AT", "2:1")
    monkeypatch.setenv("STOP_HOW", "failed")
    first = ep.run("config.yaml", overrides=STOPPABLE, raise_errors=False)
    log = "folds/{}/logs/run.log"
    assert "config:" in (first.dir / log.format(1)).read_text()
    monkeypatch.setenv("STOP_AT", "")
    assert ep.resume(first.dir).ok
    later = (first.dir / log.format(3)).read_text()
    assert "model:" in later
    assert "config:" not in later
    assert "launch:" not in later


def test_leftovers_of_killed_processes_are_swept(
    shop: Path, undisturbed: ep.RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(shop / "shop" / "stops.py", STOPS)
    monkeypatch.setenv("STOP_AT", "2:1")
    monkeypatch.setenv("STOP_HOW", "failed")
    first = ep.run("config.yaml", overrides=STOPPABLE, raise_errors=False)
    folds = first.dir / "folds"
    shutil.rmtree(folds / "2" / "checkpoints")
    for leftover in (".removing-2-fold", ".removing-2-undone", ".removing-1-fold"):
        (folds / leftover / "checkpoints").mkdir(parents=True)
    monkeypatch.setenv("STOP_AT", "")
    result = ep.resume(first.dir)
    assert (result.status, result.metrics) == ("finished", undisturbed.metrics)
    assert fold_dirs(first.dir) == ["1", "2", "3"]


def test_a_finished_cross_validation_is_not_resumed(shop: Path) -> None:
    result = ep.run("config.yaml", overrides=FOLDS)
    again = ep.resume(result.dir, raise_errors=False)
    assert "has already finished" in again.message


def test_auto_finds_the_newest_unfinished_cross_validation(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(shop / "shop" / "stops.py", STOPS)
    overrides = [*FOLDS, "hooks=[shop.stops.Stops]"]
    monkeypatch.setenv("STOP_AT", "2:2")
    monkeypatch.setenv("STOP_HOW", "preempted")
    first = ep.run("config.yaml", overrides=overrides, raise_errors=False)
    monkeypatch.setenv("STOP_AT", "")
    assert ep.run("config.yaml", overrides=overrides, resume="auto").dir == first.dir


def test_parts_from_python_are_trained_as_copies(tmp_path: Path) -> None:
    task, model = TinyTask(), TinyModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    before = [parameter.clone() for parameter in model.parameters()]
    result = ep.Experiment(
        task=task,
        model=model,
        optim=optimizer,
        train={"folds": 4, "for": "2ep"},
        choices={"no_file": True, "raise_errors": True},
    ).fit()
    assert len(result.value) == 4
    assert len({fold.metrics["train/epoch/loss"] for fold in result.value}) == 4
    assert all(map(torch.equal, before, model.parameters()))
    assert len(task.train_loader.dataset) == 24


def test_copied_parts_refer_to_each_other_and_share_their_data() -> None:
    task, model = TinyTask(), TinyModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    copies = copy_parts({"task": task, "model": model, "optim": optimizer})
    assert copies["task"] is not task
    assert copies["task"].train_loader.dataset is task.train_loader.dataset
    assert copies["optim"].param_groups[0]["params"][0] is next(copies["model"].parameters())
    assert copies["model"] is not model


def test_parts_that_cannot_be_copied_are_refused() -> None:
    class Handle(TinyTask):
        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            raise TypeError("cannot pickle a socket")

    with pytest.raises(ConfigError, match=r"train\.folds: each fold trains copies(.|\n)*socket"):
        copy_parts({"task": Handle()})


def test_means_cover_metrics_that_all_folds_have() -> None:
    def result(best: float | None, **metrics: float) -> ep.RunResult:
        return ep.RunResult(status="finished", reason="max_epochs", best=best, metrics=metrics)

    found = summarize_folds([result(1.0, a=1.0, b=5.0), result(None, a=2.0)])
    assert (found.metrics, found.best) == ({"a": 1.5}, None)
    assert found.spread == {"a": pytest.approx(math.sqrt(0.5))}
    assert math.isnan(sample_std([1.0, math.nan]))
