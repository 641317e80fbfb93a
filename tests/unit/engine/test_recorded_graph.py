"""Tests of captured steps with a graph that does the recorded operations again, and no Python."""

from __future__ import annotations

import gc
import itertools
import logging
import random
import weakref
from collections import Counter, defaultdict, deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from engine.parts import Sums, Witness, adder, fit, make_run, weights
from engine.recorded_graph import RecordedGraph, record_graphs
from epochal.components.average import Ema, Swa
from epochal.engine import Hook, Run, current_run
from epochal.engine.capture import captured_steps as captured
from epochal.engine.capture.capture_trial import CaptureTrial
from epochal.engine.loss.loss import Loss, LossTerm


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    record_graphs(monkeypatch)


def trained(task: Any, *hooks: Hook, step: str = "graph", **options: Any) -> Any:
    witness, model = Witness(), options.pop("model", None) or adder()
    engine = {"step": step, "compile_backend": "eager"}
    options = {"for_": "6ep", "eval_every": 0} | options
    run = make_run(task, model, hooks=(witness, *hooks), engine=engine, **options)
    result = fit(run)
    return result, weights(model), witness.choices


class Scaled(Sums):
    """The loss is multiplied with what Python says at that moment."""

    def __init__(self) -> None:
        super().__init__(40)
        self.prepare()

    def prepare(self) -> None:
        pass

    def scale(self) -> float:
        return 1.0

    def batch_loss(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
        loss = functional.mse_loss(out["sum"], batch[1])
        return {"loss": (loss * self.scale(), len(batch[1]))}


class OwnNumpy(Scaled):
    def prepare(self) -> None:
        self.random = np.random.default_rng(0)

    def scale(self) -> float:
        return float(self.random.beta(0.4, 0.4))


class OwnPython(Scaled):
    def prepare(self) -> None:
        self.random = random.Random(0)

    def scale(self) -> float:
        return self.random.random()


class OwnTorch(Scaled):
    def prepare(self) -> None:
        self.random = torch.Generator().manual_seed(0)

    def scale(self) -> float:
        return float(torch.rand((), generator=self.random))


class Annealing:
    count = 0

    def __call__(self) -> float:
        self.count += 1
        return min(1.0, self.count / 50)


class OwnObject(Scaled):
    def prepare(self) -> None:
        self.scale = Annealing()  # type: ignore[method-assign]


class OwnIterator(Scaled):
    def prepare(self) -> None:
        self.numbers = itertools.count()

    def scale(self) -> float:
        return min(1.0, next(self.numbers) / 50)


class OwnGlobal(Scaled):
    numbers: Any = None

    def prepare(self) -> None:
        global _numbers
        _numbers = iter(range(1000))

    def scale(self) -> float:
        return min(1.0, next(_numbers) / 50)


_numbers: Any = iter(())

FROM_STEP_TO_STEP = [OwnNumpy, OwnPython, OwnTorch, OwnObject, OwnIterator, OwnGlobal]
WITHOUT_A_COPY = [OwnIterator, OwnGlobal]
HOST_DECIDES = "something on the host changes from step to step"


def test_values_that_python_changes_in_steps_are_refused() -> None:
    for task in FROM_STEP_TO_STEP:
        for step in ["graph", "compile"]:
            _, _, choices = trained(task(), step=step)
            assert choices["step"] == "eager", step
            wanted = HOST_DECIDES if task in WITHOUT_A_COPY else "changes in the step"
            assert wanted in choices["step_reason"], step


def test_a_refused_trial_restores_generators() -> None:
    for task in [OwnNumpy, OwnPython, OwnTorch, OwnObject]:
        _, expected, _ = trained(task(), step="eager")
        _, ended, _ = trained(task())
        assert torch.equal(ended, expected), task


class Settings(Scaled):
    def prepare(self) -> None:
        self.settings = SimpleNamespace(alpha=1.0)

    def scale(self) -> float:
        return float(self.settings.alpha)

    def epoch_end(self, run: Run, split: str) -> None:
        if split == "train":
            self.settings.alpha = 0.5


class Stored(Scaled):
    def scale(self) -> float:
        return float(current_run().store.try_get("alpha", 1.0))

    def epoch_end(self, run: Run, split: str) -> None:
        if split == "train":
            run.store.force_set("alpha", 0.5)


class Arrayed(Scaled):
    def prepare(self) -> None:
        self.weights = np.ones(3)

    def scale(self) -> float:
        return float(self.weights[0])

    def epoch_end(self, run: Run, split: str) -> None:
        if split == "train":
            self.weights[0] = 0.5


class Scale(nn.Module):
    eps = 1.0

    def forward(self, here: Tensor, there: Tensor) -> Tensor:
        return self.eps * functional.mse_loss(here, there)


class Listed(Scaled):
    def prepare(self) -> None:
        self.parts = [Scale()]

    def batch_loss(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
        return {"loss": (self.parts[0](out["sum"], batch[1]), 4)}

    def epoch_end(self, run: Run, split: str) -> None:
        if split == "train":
            self.parts[0].eps = 0.5


class Given(Scaled):
    def prepare(self) -> None:
        self.loss_fn = Scale()

    def batch_loss(  # type: ignore[override]
        self, out: dict[str, Tensor], batch: list[Tensor], loss_fn: Any
    ) -> dict[str, Any]:
        return {"loss": (loss_fn(out["sum"], batch[1]), 4)}

    def epoch_end(self, run: Run, split: str) -> None:
        if split == "train":
            self.loss_fn.eps = 0.5


def test_what_changes_between_steps_is_captured_again() -> None:
    for task in [Settings, Stored, Arrayed, Listed, Given]:
        RecordedGraph.captures = 0
        _, expected, _ = trained(task(), step="eager")
        _, ended, choices = trained(task())
        assert torch.equal(ended, expected), task
        assert choices["step"] == "graph", task
        assert RecordedGraph.captures == 2, task


class Positioned(Scaled):
    def scale(self) -> float:
        return 1.0 - current_run().feed.position / 100


class Rated(Scaled):
    def scale(self) -> float:
        return current_run().learning_rates["lr"]


def test_a_step_that_reads_the_position_of_the_run_is_refused() -> None:
    for task, name in [(Positioned, "feed"), (Rated, "learning_rates")]:
        _, _, choices = trained(task())
        assert f"run.{name} is read in " in choices["step_reason"], task


class Counting(Scaled):
    """Counts its steps in every kind of container."""

    def prepare(self) -> None:
        self.count = 0
        self.counter: Counter[str] = Counter()
        self.defaults: dict[str, int] = defaultdict(int)
        self.nested: dict[str, list[int]] = {"steps": []}
        self.queue: deque[int] = deque()

    def scale(self) -> float:
        self.count += 1
        self.counter["steps"] += 1
        self.defaults["steps"] += 1
        self.nested["steps"].append(1)
        self.queue.append(1)
        return 1.0


def test_a_refused_trial_leaves_nothing_in_containers() -> None:
    task = Counting()
    result, _, _ = trained(task)
    lengths = len(task.nested["steps"]), len(task.queue)
    counts = {task.count, task.counter["steps"], task.defaults["steps"], *lengths}
    assert counts == {result.steps}


class Statistics(Scaled):
    """Running sums on the device, in an object and in a container."""

    def prepare(self) -> None:
        self.norm = SimpleNamespace(count=torch.zeros(()))
        self.table = {"count": torch.zeros(())}

    def scale(self) -> float:
        self.norm.count += 1
        self.table["count"] += 1
        return 1.0


def test_tensors_that_a_task_holds_count_every_step_once() -> None:
    task = Statistics()
    result, _, choices = trained(task)
    assert choices["step"] == "graph"
    assert task.norm.count == task.table["count"] == result.steps


def test_parameters_outside_of_the_model_are_trained_the_same() -> None:
    class Headed(Sums):
        def __init__(self) -> None:
            super().__init__(40)
            torch.manual_seed(0)
            self.heads = [nn.Linear(1, 1)]

        def batch_loss(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
            return {"loss": (functional.mse_loss(self.heads[0](out["sum"]), batch[1]), 4)}

    ends = []
    for step in ("eager", "graph"):
        model, task = adder(), Headed()
        parameters = [*model.parameters(), *task.heads[0].parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        trained(task, step=step, model=model, parts={"optimizer": optimizer})
        ends.append(weights(task.heads[0]))
    assert torch.equal(*ends)


def test_a_task_may_change_its_batch_in_place(caplog: pytest.LogCaptureFixture) -> None:
    class Halving(Sums):
        def pre_batch_forward(self, batch: list[Tensor]) -> list[Tensor]:
            batch[0].mul_(0.5)
            return batch

    caplog.set_level(logging.INFO)
    _, expected, _ = trained(Halving(40), step="eager")
    _, ended, _ = trained(Halving(40))
    assert "step: captured, equal to eager steps bit for bit" in caplog.text
    assert torch.equal(ended, expected)


class Named(Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return 80

    def __getitem__(self, index: int) -> dict[str, Any]:
        x = torch.full((3,), index / 80)
        return {"x": x, "y": x.sum(0, keepdim=True), "path": f"{index}.png"}


def test_a_constant_that_changes_from_batch_to_batch_is_named() -> None:
    class Pictures(Sums):
        def __init__(self) -> None:
            self.train_loader = DataLoader(Named(), batch_size=1)

        def batch_forward(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
            return {"sum": model(batch["x"])}

        def batch_loss(self, out: dict[str, Tensor], batch: Any) -> dict[str, Any]:
            return {"loss": (functional.mse_loss(out["sum"], batch["y"]), 1)}

        batch_metric = None  # type: ignore[assignment]

    _, _, choices = trained(Pictures())
    assert choices["step_reason"] == (
        "batch['path'][0] changes from batch to batch, and a graph would keep it: 64 in 64 steps"
    )


def test_a_further_shape_that_is_refused_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(Sums):
        odd = 0

        def batch_loss(self, out: dict[str, Tensor], batch: list[Tensor]) -> dict[str, Any]:
            self.odd += len(batch[1]) == 2
            return super().batch_loss(out, batch)

    trials: list[CaptureTrial] = []

    def counted(*args: Any) -> CaptureTrial:
        trials.append(CaptureTrial(*args))
        return trials[-1]

    monkeypatch.setattr(captured, "CaptureTrial", counted)
    caplog.set_level(logging.INFO)
    trained(Odd(22), for_="20ep")
    assert len(trials) == 2
    assert caplog.text.count("a further shape of batches stays eager: Odd.odd changes") == 1


class Deep(nn.Module):
    """Two layers with batch norm between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.first = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh())
        self.last = nn.Linear(8, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.last(self.first(features))


def test_microbatches_and_clipping_are_captured_and_train_the_same() -> None:
    for options in [
        {"optim": {"clip": {"value": 0.01}}},
        {"optim": {"clip": {"norm": 0.01}, "accumulate": 2}},
        {"engine": {"microbatch": 2}},
        {"engine": {"microbatch": "auto"}},
        {"engine": {"microbatch": 3, "recompute": ["first"]}},
    ]:
        found, RecordedGraph.replays = [], 0
        for step in ("eager", "graph"):
            model = Deep()
            engine = {"step": step, **options.get("engine", {})}
            fixed = {"for_": "6ep", "eval_every": 0, "optim": options.get("optim", {})}
            run = make_run(Sums(20, val=0), model, engine=engine, **fixed)
            fit(run)
            found.append([*map(torch.clone, model.state_dict().values())])
        assert RecordedGraph.replays > 10, options
        assert all(map(torch.equal, *found)), options


class Bare(Sums):
    batch_loss = None  # type: ignore[assignment]


def two_terms() -> Loss:
    return Loss([LossTerm(nn.MSELoss(), name="mse"), LossTerm(nn.L1Loss(), name="l1", weight=0.5)])


def test_terms_of_a_config_are_captured_as_they_are() -> None:
    ends = [trained(Bare(40), step=one, parts={"loss": two_terms()}) for one in ("eager", "graph")]
    assert torch.equal(ends[0][1], ends[1][1])
    assert ends[0][0].metrics == ends[1][0].metrics
    assert ends[1][2]["step"] == "graph"


def test_another_weight_of_a_term_is_captured_again(caplog: pytest.LogCaptureFixture) -> None:
    class Heavier(Hook):
        def epoch_start(self, run: Run, split: str) -> None:
            if run.epoch == 3:
                assert run.loss is not None
                run.loss.set_weights({"l1": 3.0})

    caplog.set_level(logging.INFO)
    ends = [
        trained(Bare(40), Heavier(), step=one, parts={"loss": two_terms()})[1]
        for one in ("eager", "graph")
    ]
    assert torch.equal(*ends)
    assert "captured again, since loss.weights changed" in caplog.text


def test_averages_move_the_same_in_captured_steps() -> None:
    for average in [
        lambda: Ema(decay=0.9, warmup=True),
        lambda: Ema(decay=0.5, every="3st"),
        lambda: Swa(start="2ep", every="7st"),
    ]:
        ends = []
        for step in ("eager", "graph"):
            one = average()
            _, _, choices = trained(Sums(40), step=step, parts={"average": one})
            ends.append({name: tensor.clone() for name, tensor in one.state_tensors().items()})
        assert choices["step"] == "graph", average
        assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items()), average


@pytest.mark.parametrize("guard", ["warn", "skip"])
def test_noise_fades_the_same_in_captured_steps(
    guard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_graphs(monkeypatch, draws=True)
    ends = []
    for step in ("eager", "graph"):
        witness, model = Witness(), adder(dropout=0.2)
        rate = torch.tensor(0.05)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, fused=True)
        run = make_run(
            Sums(40),
            model,
            hooks=(witness,),
            parts={"optimizer": optimizer},
            engine={"step": step, "on_nonfinite": guard},
            optim={"noise": 0.1, "clip": 0.5, "accumulate": 2},
            for_="6ep",
            eval_every=0,
        )
        fit(run)
        ends.append(weights(model))
    assert witness.choices["step"] == "graph", witness.choices
    assert torch.equal(*ends)


def parts_of_a_run(step: str) -> list[weakref.ref[Any]]:
    model, task = adder(), Sums(40)
    engine = {"step": step, "compile_backend": "eager"}
    run = make_run(task, model, engine=engine, for_="6ep", eval_every=0)
    parts = [weakref.ref(part) for part in (run, model, task, run.meter)]
    assert fit(run).status == "finished"
    assert run.choices["step"] == step
    return parts


@pytest.mark.usefixtures("older_objects_are_kept")
def test_memory_of_a_run_is_free_without_garbage_collection() -> None:
    for step in ["eager", "graph", "compile"]:
        parts_of_a_run(step)  # what libraries keep from their first time
        gc.collect()
        gc.disable()
        try:
            assert [part() for part in parts_of_a_run(step)] == [None] * 4
        finally:
            gc.enable()


@pytest.mark.filterwarnings("ignore")  # torch's compiler warns
def test_probed_steps_are_taken_eagerly_between_captured_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from epochal.hooks.probe import Probe

    class Probing(Scaled):
        def scale(self) -> float:
            probed.append(current_run().is_probing)
            return 1.0

    for step in ("graph", "compile"):
        probed: list[bool] = []
        _, expected, _ = trained(Scaled(), step=step)
        caplog.clear()
        with caplog.at_level("INFO"):
            _, found, choices = trained(Probing(), Probe(every="20st"), step=step)
        assert torch.equal(found, expected), step
        assert choices["step"] == step
        assert probed.count(True) == 3, step  # steps 1, 21 and 41 of 60
        assert "a probed step is taken eagerly" in caplog.text, step
    assert RecordedGraph.replays > 100
