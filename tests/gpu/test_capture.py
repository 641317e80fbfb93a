"""Captured steps on a real device have the bits of eager ones, or a refusal with its reason."""

from __future__ import annotations

import itertools
import logging
import random
import re
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

import epochal as ep
from epochal.engine.capture import compiled_steps as payback
from epochal.hooks.mixing import Mixup

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

WIDTH, CLASSES = 16, 5


class Net(nn.Module):
    """Dropout, batch norm, and a layer whose weight is used twice."""

    def __init__(self, *, dropout: float = 0.2) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.enter = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.again = nn.Linear(WIDTH, WIDTH)
        self.again.weight = self.enter.weight
        self.dropout = nn.Dropout(dropout)
        self.leave = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.enter(x)))
        return self.leave(self.dropout(functional.relu(self.again(x))))


class Points(ep.Task):
    """Classify random points; the last batch of an epoch is short."""

    def __init__(self, *, count: int = 200, batch_size: int = 16) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(count, WIDTH, generator=generator)
        samples = [{"x": row, "label": row[:CLASSES].argmax()} for row in x]
        self.train_loader: Any = DataLoader(samples, batch_size=batch_size, shuffle=True)
        self.val_loader = DataLoader(samples, batch_size=64)

    def batch_forward(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return model(batch["x"])

    def batch_loss(self, out: Tensor, batch: dict[str, Tensor]) -> dict[str, Any]:
        return {"loss": (functional.cross_entropy(out, batch["label"]), len(batch["label"]))}

    def batch_metric(self, out: Tensor, batch: dict[str, Tensor]) -> dict[str, Any]:
        hits = (out.argmax(1) == batch["label"]).float()
        return {"acc": (hits.mean(), len(batch["label"]))}


class Witness(ep.Hook):
    """Keeps facts that are known only during the run."""

    def __init__(self) -> None:
        self.choices: dict[str, object] = {}
        self.weights: dict[str, Tensor] = {}
        self.average: dict[str, Tensor] = {}

    def run_end(self, run: ep.Run) -> None:
        self.choices = dict(run.choices)
        self.weights = {k: v.detach().clone() for k, v in run.model.state_dict().items()}
        for index, state in enumerate(run.optimizer.state.values()):
            self.weights |= {f"{index}.{k}": v.clone() for k, v in state.items() if v is not None}
        if run.average is not None:
            self.average = {k: v.clone() for k, v in run.average.state_tensors().items()}


def train(step: str, **sections: Any) -> tuple[ep.RunResult, Witness]:
    witness = Witness()
    engine = {"step": step, "deterministic": True} | sections.pop("engine", {})
    parts: dict[str, Any] = {
        "task": Points(),
        "model": Net(),
        "optim": {"type": "AdamW", "lr": 0.01},
        "train": {"for": "8ep", "eval_loss": True},
        "log": {"record_every": "5st"},
    }
    parts |= {name: part() if isinstance(part, type) else part for name, part in sections.items()}
    hooks = [witness, *[hook() for hook in parts.pop("hooks", [])]]
    result = ep.Experiment(
        choices={"device": "cuda", "no_file": True}, hooks=hooks, engine=engine, **parts
    ).fit()
    assert result.ok, result.traceback
    return result, witness


def assert_same_bits(sections: Callable[[], dict[str, Any]], *, step: str = "graph") -> Witness:
    eager, kept = train("eager", **sections())
    captured, seen = train(step, **sections())
    assert kept.choices["step"] == "eager"
    assert seen.choices["step"] == "graph", seen.choices
    for name, weight in kept.weights.items():
        assert torch.equal(weight, seen.weights[name]), name
    for name, weight in kept.average.items():
        assert torch.equal(weight, seen.average[name]), name
    assert captured.metrics == eager.metrics
    assert captured.steps == eager.steps
    return seen


class Uneven(Points):
    """Batches of three sizes in turn."""

    def __init__(self) -> None:
        super().__init__()
        samples = self.train_loader.dataset
        sizes = [12, 20, 8] * 5
        ends = np.cumsum(sizes)
        batches = [list(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
        self.train_loader = DataLoader(samples, batch_sampler=batches)


class CountingTensors(Points):
    """Counts on the device only."""

    def batch_loss(self, out: Tensor, batch: dict[str, Tensor]) -> dict[str, Any]:
        mask = batch["x"][:, 0] > 0
        losses = functional.cross_entropy(out, batch["label"], reduction="none")
        count = mask.sum()
        return {"loss": ((losses * mask).sum() / count.clamp(min=1), count)}


class Grouped(Points):
    pass


def groups() -> dict[str, Any]:
    model = Net().cuda()
    rate = torch.tensor(0.01, device="cuda")
    params = [{"params": [*model.enter.parameters()], "weight_decay": 0.1}]
    params += [{"params": [*model.leave.parameters()], "lr": rate.clone() / 3}]
    optim = torch.optim.AdamW(params, lr=rate, fused=True, capturable=True)
    return {"model": model, "optim": optim}


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "dropout, batch norm, tied weights and a ragged last batch": dict,
    "clipping": lambda: {"optim": {"type": "AdamW", "lr": 0.01, "clip": 0.1}},
    "accumulation": lambda: {"optim": {"type": "AdamW", "lr": 0.01, "accumulate": 3}},
    "momentum": lambda: {"optim": {"type": "SGD", "lr": 0.1, "momentum": 0.9}},
    "an optimizer that is capturable only": lambda: {"optim": {"type": "NAdam", "lr": 0.01}},
    "a cosine schedule": lambda: {"schedule": {"type": "cosine", "warmup": "10st"}},
    "a schedule of torch": lambda: {"schedule": {"type": "StepLR", "step_size": 20}},
    "bf16": lambda: {"engine": {"precision": "bf16"}},
    "fp16": lambda: {"engine": {"precision": "fp16"}},
    "fp64": lambda: {"engine": {"precision": "fp64"}},
    "tf32": lambda: {"engine": {"precision": "tf32"}},
    "an average": lambda: {"average": {"type": "ema", "decay": 0.9}},
    "the guard": lambda: {
        "engine": {"on_nonfinite": "skip"},
        "average": {"type": "ema", "decay": 0.9},
        "optim": {"type": "AdamW", "lr": 0.01, "clip": 1.0},
    },
    "evaluation in between": lambda: {"train": {"for": "8ep", "eval_every": "7st"}},
    "alternating shapes": lambda: {"task": Uneven(), "model": Net(dropout=0.5)},
    "counts on the device": lambda: {
        "task": CountingTensors(),
        "optim": {"type": "AdamW", "lr": 0.01, "accumulate": 2},
    },
    "the norm of the gradient": lambda: {"log": {"grad_norm": True}},
    "parameter groups": groups,
    "metric objects": lambda: {
        "metrics": [{"type": "accuracy", "on": ["train", "val"], "name": "hits"}],
        "task": Mapped(),
    },
    "data on the device": lambda: {"task": Resident()},
}


class Mapped(Points):
    """Outputs in the form that metrics expect."""

    def batch_forward(self, model: nn.Module, batch: dict[str, Tensor]) -> Any:
        return {"logits": model(batch["x"])}

    def batch_loss(self, out: Any, batch: dict[str, Tensor]) -> dict[str, Any]:
        return super().batch_loss(out["logits"], batch)

    def batch_metric(self, out: Any, batch: dict[str, Tensor]) -> dict[str, Any]:
        return super().batch_metric(out["logits"], batch)


class Resident(Points):
    """In-memory data on the device."""

    def __init__(self) -> None:
        super().__init__()
        rows = self.train_loader.dataset
        x, label = (torch.stack([row[name] for row in rows]) for name in ("x", "label"))
        tensors = ep.data.Tensors(x=x, label=label, resident=True)
        self.train_loader = tensors.loader(batch_size=16, shuffle=True)


@pytest.mark.parametrize("case", CASES)
def test_captured_steps_give_the_bits_of_eager_ones_with(case: str) -> None:
    assert_same_bits(CASES[case])


def test_auto_captures_and_reports_it_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert_same_bits(dict, step="auto")
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("step: captured")]
    assert len(lines) == 1
    assert "bit for bit" in lines[0]


def test_random_numbers_continue_like_those_of_eager_steps() -> None:
    states = []
    for step in ("eager", "graph"):

        class Look(ep.Hook):
            def run_end(self, run: ep.Run) -> None:
                states.append(torch.cuda.get_rng_state())

        train(step, hooks=[Look])
    assert torch.equal(*states)


class Branching(Points):
    def batch_loss(self, out: Tensor, batch: dict[str, Tensor]) -> dict[str, Any]:
        loss = functional.cross_entropy(out, batch["label"])
        if loss > 0.5:  # branches on the data
            loss = loss * 2
        return {"loss": (loss, len(batch["label"]))}


class Reading(Points):
    def batch_metric(self, out: Tensor, batch: dict[str, Tensor]) -> dict[str, Any]:
        return {"top": (out.max().item(), 1)}  # reads a value


class Waiting(Points):
    """Waits for the device, which makes a capture invalid, for batches of these sizes."""

    sizes = range(1000)

    def batch_loss(self, out: Tensor, batch: dict[str, Tensor]) -> dict[str, Any]:
        if len(batch["label"]) in self.sizes:
            torch.cuda.synchronize()
        return super().batch_loss(out, batch)


class Recurrent(nn.Module):
    """Dropout between the layers, which cuDNN draws."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.lstm = nn.LSTM(1, WIDTH, num_layers=2, dropout=0.2, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.leave = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.dropout(self.lstm(x[:, :, None])[0][:, -1]))


class Growing(Points):
    calls = 0

    def batch_loss(self, out: Tensor, batch: dict[str, Tensor]) -> dict[str, Any]:
        self.calls += 1
        loss = functional.cross_entropy(out, batch["label"]) * (1 + self.calls)
        return {"loss": (loss, len(batch["label"]))}


class Annealing(Points):
    def batch_loss(self, out: Tensor, batch: dict[str, Tensor]) -> dict[str, Any]:
        weight = min(1.0, ep.current_run().step / 50)  # reads the time
        loss = functional.cross_entropy(out, batch["label"]) * weight
        return {"loss": (loss, len(batch["label"]))}


class Mixing(Points):
    def pre_batch_forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        share = random.random()
        return {"x": batch["x"] * share, "label": batch["label"]}


class MixingWithNumpy(Points):
    def pre_batch_forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        share = float(np.random.beta(1.0, 1.0))
        return {"x": batch["x"] * share, "label": batch["label"]}


class MixingByItself(Points):
    """Draws from its own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(0)

    def pre_batch_forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"x": batch["x"] * float(self.random.beta(1.0, 1.0)), "label": batch["label"]}


class Schedule:
    count = 0

    def __call__(self) -> float:
        self.count += 1
        return min(1.0, self.count / 50)


class AnnealingByItself(Points):
    def __init__(self) -> None:
        super().__init__()
        self.weight = Schedule()

    def batch_loss(self, out: Tensor, batch: dict[str, Tensor]) -> dict[str, Any]:
        loss = functional.cross_entropy(out, batch["label"]) * self.weight()
        return {"loss": (loss, len(batch["label"]))}


class Iterating(AnnealingByItself):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count()
        self.weight = lambda: min(1.0, next(self.numbers) / 50)  # type: ignore[assignment]


class Changing(Points):
    """Batches that never have the same shape twice."""

    def __init__(self) -> None:
        super().__init__(count=4000)
        samples = self.train_loader.dataset
        batches = [list(range(size)) for size in range(3, 80)]
        self.train_loader = DataLoader(samples, batch_sampler=batches)


class AtBatches(ep.Hook):
    def batch_end(self, run: ep.Run, split: str) -> None:
        pass


REFUSALS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "control flow that depends on data": (
        lambda: {"task": Branching()},
        r"test_capture.py:\d+ \(`if loss > 0.5:",
    ),
    "a value that the task reads": (lambda: {"task": Reading()}, r"test_capture.py:\d+ .*item()"),
    "a wait for the device": (
        lambda: {"task": Waiting()},
        r"test_capture.py:\d+ \(`torch.cuda.synchronize",
    ),
    "dropout that cuDNN draws": (
        lambda: {"model": Recurrent()},
        "dropout between the layers of model.lstm has its own generator in cuDNN",
    ),
    "a counter of the task": (lambda: {"task": Growing()}, "Growing.calls changes in the step"),
    "the position of the run": (lambda: {"task": Annealing()}, "run.step is read in .*test_capt"),
    "random numbers of Python": (lambda: {"task": Mixing()}, "from Python's random"),
    "random numbers of numpy": (lambda: {"task": MixingWithNumpy()}, "from numpy.random"),
    "its own generator": (
        lambda: {"task": MixingByItself()},
        "MixingByItself.random changes in the step",
    ),
    "an object that counts": (
        lambda: {"task": AnnealingByItself()},
        "AnnealingByItself.weight changes in the step",
    ),
    "shapes that never repeat": (
        lambda: {"task": Changing(), "train": {"for": "1ep"}},
        "do not repeat",
    ),
    "a hook inside the step": (lambda: {"hooks": [AtBatches]}, "AtBatches.batch_end acts inside"),
    "a schedule that moves the momentum": (
        lambda: {
            "schedule": {"type": "OneCycleLR", "max_lr": 0.01, "total_steps": 200},
        },
        "optim.0.betas changes with the steps",
    ),
    "an optimizer that cannot": (
        lambda: {"optim": {"type": "Adafactor", "lr": 0.01}},
        "Adafactor is not capturable",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused_capture_falls_back_to_eager_steps(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sections, reason = REFUSALS[case]
    random.seed(1)
    refused, seen = train("auto", **sections())
    eager, kept = train("eager", **sections())
    assert seen.choices["step"] == "eager"
    text = " ".join(record.getMessage() for record in caplog.records)
    assert "step: eager: " in text
    assert re.search(reason, text), text
    for name, weight in kept.weights.items():
        assert torch.equal(weight, seen.weights[name]), name
    assert refused.metrics == eager.metrics


class HiddenRecurrent(Points):
    """Has an LSTM that no look at the model finds."""

    def __init__(self) -> None:
        super().__init__()
        self.front = Recurrent().cuda()

    def batch_forward(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return model(batch["x"]) + self.front(batch["x"])


def test_a_failed_capture_leaves_nothing_behind() -> None:
    def fail() -> int:
        for task in (Waiting, HiddenRecurrent):
            _, seen = train("auto", task=task)
            assert seen.choices["step"] == "eager", task
            assert torch.cuda.current_stream() == torch.cuda.default_stream(), task
        block = torch.empty(2**24, dtype=torch.uint8, device="cuda")
        block.record_stream(torch.cuda.Stream())
        del block, seen
        torch.cuda.synchronize()
        torch.empty(1, device="cuda")  # frees the block, unless a capture is under way
        return torch.cuda.memory_allocated()

    used = fail()  # and what libraries keep from their first time
    assert fail() <= used + 2**20
    assert_same_bits(dict)


def test_a_further_shape_whose_capture_fails_leaves_the_other_graphs_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class WaitingAtTheEnd(Waiting):
        sizes = range(16)  # the last batch of an epoch is short

    caplog.set_level(logging.INFO)
    assert_same_bits(lambda: {"task": WaitingAtTheEnd})
    assert "a further shape of batches stays eager: " in caplog.text


@pytest.mark.parametrize("step", ["graph", "compile"])
@pytest.mark.parametrize("task", [MixingByItself, AnnealingByItself, Iterating])
def test_host_decisions_are_refused_without_deterministic_too(
    task: type[Points], step: str
) -> None:
    _, seen = train(step, task=task, engine={"deterministic": False})
    assert seen.choices["step"] == "eager"
    assert "changes" in str(seen.choices["step_reason"])


def test_steps_are_captured_without_deterministic_too() -> None:
    eager, _ = train("eager", engine={"deterministic": False})
    captured, seen = train("graph", engine={"deterministic": False})
    assert seen.choices["step"] == "graph", seen.choices
    assert captured.metrics["train/epoch/loss"] == pytest.approx(
        eager.metrics["train/epoch/loss"], rel=0.05
    )


class Plain(Points):
    """Reads numbers from an object, from the store and from a tensor on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = SimpleNamespace(weight=1.0)
        self.factor = torch.tensor(1.0)

    def batch_loss(self, out: Tensor, batch: dict[str, Tensor]) -> dict[str, Any]:
        share = ep.current_run().store.try_get("share", 1.0)
        loss = functional.cross_entropy(out, batch["label"]) * self.settings.weight * share
        return {"loss": (loss * self.factor, len(batch["label"]))}


class SettingsChanger(ep.Hook):
    def epoch_end(self, run: ep.Run, split: str) -> None:
        if split == "train" and run.epoch == 2:
            run.task.settings.weight = 0.5
        elif split == "train" and run.epoch == 4:
            run.store.force_set("share", 0.5)
        elif split == "train" and run.epoch == 6:
            run.task.factor.fill_(0.5)


def test_changed_numbers_of_task_and_store_are_noticed() -> None:
    assert_same_bits(lambda: {"task": Plain, "hooks": [SettingsChanger]})


def test_task_may_change_its_batch_in_place(caplog: pytest.LogCaptureFixture) -> None:
    class Halving(Points):
        def pre_batch_forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
            batch["x"].mul_(0.5)
            return batch

    caplog.set_level(logging.INFO)
    assert_same_bits(lambda: {"task": Halving})
    assert "step: captured, equal to eager steps bit for bit" in caplog.text


class Warmer(ep.Hook):
    """Changes a plain number of the model after some epochs."""

    def epoch_end(self, run: ep.Run, split: str) -> None:
        if split == "train" and run.epoch in (2, 5):
            run.model.dropout.p = 0.05 * run.epoch


class Freezer(ep.Hook):
    """Freezes a layer and turns a norm into eval mode."""

    def epoch_end(self, run: ep.Run, split: str) -> None:
        if split == "train" and run.epoch == 3:
            run.model.leave.requires_grad_(False)
            run.model.norm.eval()


class RateSetter(ep.Hook):
    """Writes a learning rate into the optimizer."""

    def epoch_end(self, run: ep.Run, split: str) -> None:
        if split == "train" and run.epoch == 3:
            run.optimizer.param_groups[0]["lr"] = 0.002


class Decayer(ep.Hook):
    def epoch_end(self, run: ep.Run, split: str) -> None:
        if split == "train" and run.epoch == 3:
            run.optimizer.param_groups[0]["weight_decay"] = 0.5


@pytest.mark.parametrize("hook", [Warmer, Freezer, RateSetter, Decayer])
def test_changes_by_a_hook_between_steps_take_effect(hook: type[ep.Hook]) -> None:
    assert_same_bits(lambda: {"hooks": [hook]})


class Scored(Points):
    """Keeps a number from each evaluation that no step reads."""

    best = 0.0

    def eval_end(self, run: ep.Run, split: str, metrics: dict[str, float]) -> None:
        self.best = max(self.best, metrics["val/acc"]) + 1e-3


def test_attributes_that_no_step_reads_need_no_new_capture(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    train("graph", task=Scored)
    assert "captured again" not in caplog.text


def test_hook_sees_the_gradients_of_captured_steps() -> None:
    norms: dict[str, list[float]] = {}
    for step in ("eager", "graph"):

        class Norms(ep.Hook):
            def step_end(self, run: ep.Run) -> None:
                gradient = run.model.leave.weight.grad
                norms.setdefault(run.options.engine.step, []).append(gradient.norm().item())

        train(step, hooks=[Norms])
    assert norms["graph"] == norms["eager"]


def set_waiting(mode: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it does not find all of them
        torch.cuda.set_sync_debug_mode(mode)


class NoWaiting(ep.Hook):
    """Makes waiting for the device an error after the first steps."""

    def step_end(self, run: ep.Run) -> None:
        if run.step == 30:
            set_waiting("error")
        if run.step == 149:
            set_waiting("default")


@pytest.mark.parametrize("step", ["eager", "graph"])
def test_no_step_waits_for_the_device_with_everything_on(step: str) -> None:
    try:
        result, _ = train(
            step,
            hooks=[NoWaiting],
            engine={"on_nonfinite": "skip", "deterministic": False},
            average={"type": "ema", "decay": 0.9},
            optim={"type": "AdamW", "lr": 0.01, "clip": 1.0},
            schedule={"type": "cosine"},
            log={"record_every": "1st", "console_every": "3st", "grad_norm": True},
            train={"for": "150st", "eval_every": 0},
            task=lambda_task(),
        )
    finally:
        set_waiting("default")
    assert result.steps == 150


def lambda_task() -> Points:
    return Points(count=6400)  # one epoch: its end may wait


COMPILERS_WARN = pytest.mark.filterwarnings("ignore")  # torch's compiler warns


@COMPILERS_WARN
def test_compiled_steps_end_close_to_eager_ones() -> None:
    eager, _ = train("eager", engine={"deterministic": False})
    compiled, seen = train("compile", engine={"deterministic": False})
    assert seen.choices["step"] == "compile"
    assert compiled.metrics["train/epoch/loss"] == pytest.approx(
        eager.metrics["train/epoch/loss"], rel=0.02
    )


@COMPILERS_WARN
def test_auto_compiles_when_it_pays_and_reports_the_gain(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(payback, "MIN_SECONDS_TO_COMPILE", 0.0)
    caplog.set_level(logging.INFO)
    _, seen = train("auto", engine={"deterministic": False}, train={"for": "400st"})
    assert "compiling" in caplog.text
    assert "ms per step" in caplog.text
    assert seen.choices["step"] in ("compile", "graph")


def test_memory_of_graphs_is_freed_at_the_end() -> None:
    train("graph")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    train("graph")
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + 2**20


class Bare(Points):
    """Leaves the loss to the config."""

    batch_loss = None  # type: ignore[assignment]


class Deep(Net):
    """Drops its second layer for some samples."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = ep.nn.StochasticDepth(0.3)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.enter(x)))
        return self.leave(x + self.drop(functional.relu(self.again(x))))


LOSSES = [
    {"type": "cross_entropy", "name": "ce", "label_smoothing": 0.1, "class_weights": [1.0] * 5},
    {"type": "focal", "name": "focal", "weight": 0.3},
]
ROUTES = {"input": "out", "target": "batch.label"}
TRICKS: dict[str, dict[str, Any]] = {
    "loss": {"task": Bare, "loss": [{**one, "inputs": ROUTES} for one in LOSSES]},
    "ignored targets": {
        "task": Bare,
        "loss": {"type": "cross_entropy", "ignore_index": 2, "inputs": ROUTES},
    },
    "mixup": {"hooks": [lambda: Mixup(classes=CLASSES), lambda: Mixup(classes=CLASSES, prob=0.5)]},
    "noise": {"optim": {"type": "AdamW", "lr": 0.01, "noise": 0.01, "clip": 1.0}},
    "warm average": {"average": {"type": "ema", "decay": 0.9, "warmup": True}},
    "mean of weights": {"average": {"type": "swa", "start": "2ep", "every": "5st"}},
    "stochastic depth": {"model": Deep},
}


@pytest.mark.parametrize("trick", TRICKS)
def test_one_line_options_are_captured(trick: str) -> None:
    assert_same_bits(lambda: dict(TRICKS[trick]))


def test_cutmix_boxes_need_no_device_read() -> None:
    from epochal.hooks.mixing import CutMix

    images = torch.randn(4, 3, 8, 8, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        mixed, kept = CutMix().mix(images, torch.full((), 0.4, device="cuda"))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    changed = (mixed != images).any(1)[0].float().mean()
    torch.testing.assert_close(kept, 1 - changed)
