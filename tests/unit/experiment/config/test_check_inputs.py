"""Tests of the one path from a config to the checked inputs of a run."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader

import epochal as ep
from epochal.config import load
from epochal.engine import Train
from epochal.errors import CheckpointError
from epochal.experiment.run import evaluate_run
from epochal.records.folder.record_digests import add_digest
from epochal.testing import TinyModel, TinyTask
from small_project import Command, run_folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from small_project import Command


def test_every_way_to_run_a_config_loads_it_once_and_checks_it_once(
    shop: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def count(module: str, name: str, what: str) -> None:
        function: Callable[..., Any] = getattr(import_module(module), name)

        def counting(*args: Any, **options: Any) -> Any:
            calls.append(what)
            return function(*args, **options)

        monkeypatch.setattr(import_module(module), name, counting)

    count("epochal.config.load", "read_source", "load")
    count("epochal.check.config", "ConfigChecker", "check")
    choices: Any = {"no_file": True, "fast": True}
    words = ["config.yaml", "--no-file", "--fast"]
    ways: dict[str, Callable[[], Any]] = {
        "epochal run": lambda: epochal("run", *words, "seed=1"),
        "ep.run": lambda: ep.run("config.yaml", **choices),
        "Experiment.fit": lambda: ep.Experiment("config.yaml", choices=choices).fit(),
        "Experiment.test": lambda: ep.Experiment("config.yaml", choices=choices).test(),
        "a script": lambda: ep.Experiment(ep.parse_args(["-c", *words])).run(),
    }
    for way, run in ways.items():
        calls.clear()
        run()
        assert sorted(calls) == ["check", "load"], way


ROWS: Any = [{"x": torch.zeros(4), "label": torch.tensor(0)}] * 4


class Read:
    """What a run recorded about its parts."""

    def __init__(self, shop: Path) -> None:
        (self.folder,) = run_folders(shop)
        self.run = json.loads((self.folder / "run.json").read_text())
        self.expanded = load(self.folder / "config" / "expanded.yaml").root.to_plain()
        self.observed = json.loads((self.folder / "config" / "observed.json").read_text())
        self.log = (self.folder / "logs" / "run.log").read_text()


def fit(kind: type[ep.Experiment] = ep.Experiment, **sections: Any) -> ep.RunResult:
    result = kind("config.yaml", choices={"fast": True, "device": "cpu"}, **sections).fit()
    assert result.ok, result.traceback
    return result


class Hook(ep.Hook):
    def step_end(self, run: ep.Run) -> None: ...


def test_record_does_not_claim_sections_whose_parts_were_given(shop: Path) -> None:
    result = fit(model=TinyModel(), task=TinyTask(), hooks=[Hook()])
    read = Read(shop)
    assert read.run["given"] == ["hooks", "model", "task"]
    assert not {"model", "task"} & read.expanded.keys()
    assert not {"model", "task"} & result.config.keys()
    assert read.observed["model"] == "<epochal.testing.TinyModel>"
    assert read.observed["task"] == "<epochal.testing.TinyTask>"
    assert "shop.parts" not in read.log
    assert "model: given by Python; the section of the config is not used" in read.log


def test_given_loaders_replace_those_of_the_same_split(shop: Path) -> None:
    rows = {"type": "shop.parts.Rows"}
    loader = DataLoader(ROWS, batch_size=2)
    result = ep.Experiment(
        {"task": {"type": "shop.parts.Fed"}, "data": {"train": rows, "dev": rows}},
        optim={"type": "SGD"},
        model=TinyModel(),
        data={"val": loader},
        choices={"device": "cpu", "fast": True},
    ).fit()
    assert result.ok, result.traceback
    assert [*result.config["data"]] == ["train"]


def test_model_with_its_own_loss_needs_no_task(shop: Path) -> None:
    class Loss(TinyModel):
        def forward(self, x: torch.Tensor, label: torch.Tensor) -> Any:  # type: ignore[override]
            return {"loss": (super().forward(x).sum(), len(x))}

    data = {"train": DataLoader(ROWS, batch_size=2)}
    choices: Any = {"no_file": True, "device": "cpu"}
    result = ep.Experiment(
        model=Loss(), data=data, optim={"type": "SGD"}, train={"for": "1ep"}, choices=choices
    ).fit()
    assert result.ok, result.traceback


def test_a_monitored_loss_is_computed_in_evaluations(shop: Path) -> None:
    class Loss(TinyModel):
        def forward(self, x: torch.Tensor, label: torch.Tensor) -> Any:  # type: ignore[override]
            return {"loss": (super().forward(x).sum(), len(x))}

    loader = DataLoader(ROWS, batch_size=2)
    for monitor, has_loss in (("-val/loss", True), ("-train/loss", False)):
        result = ep.Experiment(
            model=Loss(),
            data={"train": loader, "val": loader},
            optim={"type": "SGD"},
            train={"for": "1ep"},
            monitor=monitor,
            choices={"no_file": True, "device": "cpu"},
        ).fit()
        assert result.ok, result.traceback
        assert ("val/loss" in result.metrics) == has_loss, monitor


def test_a_given_runner_is_named_and_not_used_for_tests(shop: Path) -> None:
    class Mine(Train):
        pass

    experiment = ep.Experiment("config.yaml", runner=Mine(), choices={"fast": True})
    assert experiment.fit().steps == 3
    read = Read(shop)
    assert (read.run["runner"], read.run["given"]) == ("Mine", ["runner"])
    assert "runner" not in read.expanded
    assert experiment.test().metrics.keys() == {"test/acc"}


def test_a_runner_with_its_own_optimizers_needs_no_section(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Own(Train):
        needs_optimizer = False

        def prepare(self, run: ep.Run) -> None:
            super().prepare(run)
            self.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1)

        def train_step(self, run: ep.Run, microbatches: Any) -> None:
            self.optimizer.zero_grad()
            for batch in microbatches:
                outcome = run.train_batch(batch)
                outcome.loss.backward()
                run.finish_batch(outcome)
            self.optimizer.step()

    class Needy(Train):
        pass

    parts: Any = {"task": TinyTask(), "model": TinyModel(), "choices": {"no_file": True}}
    assert ep.Experiment(runner=Own(), train={"for": "1ep"}, **parts).fit().steps == 6
    result = ep.Experiment(runner=Needy(), **parts).fit(raise_errors=False)
    assert result.exit_code == 78
    assert "optim: missing; the runner 'Needy' needs it" in capsys.readouterr().err


def test_runner_of_the_config_is_used_by_fit(shop: Path) -> None:
    choices: Any = {"no_file": True}
    result = ep.Experiment("config.yaml", runner="shop.parts.Bragging", choices=choices).fit()
    assert result.value == "hello"


def test_a_run_of_given_parts_is_evaluated_by_its_script(shop: Path, epochal: Command) -> None:
    fit(model=TinyModel(), task=TinyTask())
    for verb in ("test", "predict"):
        done = epochal(verb, "last")
        assert done.code == 74
        assert "its task and model came from Python" in done.err
        assert f"experiment.{verb}() in the script that made them" in done.err
    assert "given    model, task" in epochal("show", "last").out


def test_a_damaged_list_of_given_parts_is_ignored(shop: Path) -> None:
    result = fit()
    assert result.dir is not None
    facts = json.loads((result.dir / "run.json").read_text())
    assert facts["given"] == []
    (result.dir / "run.json").write_text(json.dumps(add_digest(facts | {"given": 3})))
    assert evaluate_run("last", "test", shop / "runs", no_file=True).ok


def test_an_empty_title_counts_as_missing(shop: Path, epochal: Command) -> None:
    for title in ("tag", "project"):
        assert epochal("run", "config.yaml", "--fast", f"{title}=null").code == 0
    runs = [json.loads((one / "run.json").read_text()) for one in run_folders(shop)]
    titles = [(run["tag"], run["project"]) for run in runs]
    assert sorted(titles) == [("config", "store"), ("shop", "store")]


def test_weights_of_given_parts_can_be_loaded_again(shop: Path) -> None:
    result = fit(model=TinyModel())
    assert result.dir is not None
    with pytest.raises(CheckpointError, match="init_from=") as caught:
        evaluate_run("last", "test", shop / "runs")
    weights = str(caught.value).rpartition("init_from=")[2].strip("'")
    again = ep.Experiment(
        "config.yaml", model=TinyModel(), init_from=weights, choices={"fast": True}
    )
    assert again.test().metrics["test/acc"] == result.metrics["val/acc"]
