"""The weights saved at the end of training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open

from epochal.checkpoint import load_weights
from epochal.checkpoint.weights import AVERAGED_WEIGHTS_FILE, FINAL_WEIGHTS_FILE
from epochal.components.average import Ema
from epochal.engine.execute import execute
from epochal.engine.interfaces.hook import Hook
from epochal.engine.run.engine_run import Environment
from epochal.engine.runner import Test as Evaluate
from epochal.engine.runner import Train
from epochal.hooks.safetensors_export import FinalWeights
from epochal.testing import InjectedError, TinyModel, short_options, tiny_run

if TYPE_CHECKING:
    import pytest

    from epochal.engine.run.engine_run import EngineRun


def train(
    folder: Path | None, *others: Hook, runner: Any = None, model: TinyModel | None = None
) -> TinyModel:
    model = model or TinyModel()
    setting = Environment(tag="tiny", checkpoint_dir=folder)
    options = short_options(for_="1ep")
    run = tiny_run(FinalWeights(), *others, model=model, setting=setting, options=options)
    execute(run, runner or Train())
    return model


def test_the_weights_of_the_last_step_are_kept(tmp_path: Path) -> None:
    model = train(tmp_path)
    kept = load_weights(tmp_path / FINAL_WEIGHTS_FILE)
    assert kept.keys() == model.state_dict().keys()
    assert all(torch.equal(kept[name], tensor) for name, tensor in model.state_dict().items())


def test_metadata_names_run_and_step(tmp_path: Path) -> None:
    train(tmp_path)
    with safe_open(tmp_path / FINAL_WEIGHTS_FILE, "pt") as file:
        facts = file.metadata()
    assert (facts["tag"], facts["step"], facts["epoch"]) == ("tiny", "6", "1")


def test_metadata_has_what_the_task_says_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "Zq7plain42")
    meta = {
        "classes": ["token", "red"],
        "api_key": "abcd1234",
        "source": "https://ann:hunter2x@host/data",
        "note": "opened with Zq7plain42",
        "when": Path("data"),
    }

    class Talkative(Hook):
        def run_start(self, run: EngineRun) -> None:
            run.meta = meta

    train(tmp_path, Talkative())
    with safe_open(tmp_path / FINAL_WEIGHTS_FILE, "pt") as file:
        kept = json.loads(file.metadata()["meta"])
    assert kept == {
        "classes": ["token", "red"],
        "api_key": "<redacted>",
        "source": "https://<redacted>@host/data",
        "note": "opened with <redacted>",
        "when": "data",
    }


def test_a_stopped_run_keeps_its_weights(tmp_path: Path) -> None:
    class Stopper(Hook):
        def step_end(self, run: EngineRun) -> None:
            run.stop("enough")

    train(tmp_path, Stopper())
    assert (tmp_path / FINAL_WEIGHTS_FILE).exists()


def test_a_failed_run_keeps_no_weights(tmp_path: Path) -> None:
    class Broken(Hook):
        def step_end(self, run: EngineRun) -> None:
            raise InjectedError("on purpose")

    train(tmp_path, Broken())
    assert not (tmp_path / FINAL_WEIGHTS_FILE).exists()


def test_an_interrupted_run_keeps_its_weights_unless_it_took_no_step(
    tmp_path: Path,
) -> None:
    class Impatient(Hook):
        def __init__(self, event: str) -> None:
            setattr(self, event, self._leave)

        def _leave(self) -> None:
            raise KeyboardInterrupt

    train(tmp_path / "none", Impatient("epoch_start"))
    assert not (tmp_path / "none" / FINAL_WEIGHTS_FILE).exists()
    train(tmp_path, Impatient("step_end"))
    assert (tmp_path / FINAL_WEIGHTS_FILE).exists()


def test_a_failure_does_not_affect_the_next_run_of_the_same_object(tmp_path: Path) -> None:
    keeper = FinalWeights()
    keeper.error(tiny_run(), InjectedError("on purpose"))
    setting = Environment(checkpoint_dir=tmp_path)
    execute(tiny_run(keeper, setting=setting, options=short_options(for_="1ep")), Train())
    assert (tmp_path / FINAL_WEIGHTS_FILE).exists()


def test_evaluations_and_runs_without_a_record_keep_no_weights(tmp_path: Path) -> None:
    train(tmp_path, runner=Evaluate())
    train(None)
    assert not list(tmp_path.iterdir())


def test_uninitialized_lazy_parameters_are_left_out(tmp_path: Path) -> None:
    model = TinyModel()
    model.unused = torch.nn.LazyLinear(2)
    train(tmp_path, model=model)
    assert set(load_weights(tmp_path / FINAL_WEIGHTS_FILE)) == {"linear.weight", "linear.bias"}


def test_averaged_weights_are_saved_too(tmp_path: Path) -> None:
    model, average = TinyModel(), Ema(decay=0.5)
    run = tiny_run(
        FinalWeights(),
        model=model,
        setting=Environment(checkpoint_dir=tmp_path),
        options=short_options(for_="1ep"),
    )
    run.average = average
    execute(run, Train())
    own, kept = (
        load_weights(tmp_path / FINAL_WEIGHTS_FILE),
        load_weights(tmp_path / AVERAGED_WEIGHTS_FILE),
    )
    assert all(torch.equal(own[name], tensor) for name, tensor in model.state_dict().items())
    assert all(torch.equal(kept[name], one) for name, one in average.state_tensors().items())
    assert not torch.equal(own["linear.weight"], kept["linear.weight"])


def test_a_run_without_averaging_writes_one_file(tmp_path: Path) -> None:
    train(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FINAL_WEIGHTS_FILE]
