"""Tests of the whole state of a run: collected, restored, bit for bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from engine.parts import Sums, adder, fit, make_run
from epochal.checkpoint import serialize_tree
from epochal.components.average import Ema
from epochal.components.metrics import Mean
from epochal.engine import Hook, Metric, Monitor, Run, TorchSchedule
from epochal.engine.loss.metric_adapter import MetricAdapter
from epochal.engine.measure.meter import Meter
from epochal.engine.state.run_state import collect_state, restore_state
from epochal.errors import CheckpointError
from epochal.hooks.early_stopping import EarlyStopping
from epochal.hooks.recording import Recording
from resume import assert_resumes_everywhere, follow, resume


def plain(setting: dict[str, Any], **options: Any) -> Run:
    """Dropout, AdamW, an average, metrics, records and evaluations that do not fit the epochs."""
    model = adder(dropout=0.3)
    parts = {
        "optimizer": torch.optim.AdamW(model.parameters(), lr=0.01),
        "average": Ema(decay=0.9),
        "monitor": Monitor("val/mae"),
        **options.pop("parts", {}),
    }
    hooks = (Recording(every="2st"), EarlyStopping(patience=50))
    given = {"for_": "2ep", "eval_every": "3st", "log": {"grad_norm": True}} | options
    return make_run(Sums(22), model, hooks=hooks, setting=setting, parts=parts, **given)


def test_a_run_resumes_at_every_boundary_bit_for_bit() -> None:
    assert assert_resumes_everywhere(plain) == 13  # 12 steps, the last of an epoch once


@pytest.mark.parametrize(
    "options",
    [
        {"optim": {"accumulate": 2}},
        {"engine": {"on_nonfinite": "skip"}},
        {"engine": {"on_nonfinite": "stop"}},
        {"optim": {"clip": 0.1}, "eval_every": "1ep", "eval_at_end": True},
        {"for_": "9st"},
        {"for_": "40sa", "eval_every": {"val": "12sa", "test": "1ep"}},
    ],
)
def test_a_run_resumes_with_any_options(options: dict[str, Any]) -> None:
    assert_resumes_everywhere(lambda setting: plain(setting, **options))


def test_a_run_resumes_with_metrics_that_arrive_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epochal.engine.run.engine_run.Meter", partial(Meter, is_async=True))
    assert_resumes_everywhere(plain)


def scheduled(setting: dict[str, Any], make: Any, unit: str) -> Run:
    model = adder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    parts = {
        "optimizer": optimizer,
        "schedule": TorchSchedule(make(optimizer), unit=unit),
        "monitor": Monitor("val/mae"),
    }
    return make_run(
        Sums(14), model, setting=setting, parts=parts, for_="2ep", eval_every="2st", hooks=()
    )


SCHEDULERS: list[Any] = [
    lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.2, total_steps=20),
    lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, factor=0.5, cooldown=1),
    lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o, 0.1, total_iters=4), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    lambda o: lr_scheduler.ChainedScheduler(
        [
            lr_scheduler.SequentialLR(
                o,
                [lr_scheduler.ExponentialLR(o, 0.9), lr_scheduler.CosineAnnealingLR(o, 9)],
                milestones=[2],
            ),
            lr_scheduler.ConstantLR(o, 0.1, total_iters=3),
        ]
    ),
]


@pytest.mark.parametrize("make", SCHEDULERS)
def test_every_scheduler_of_torch_continues(make: Any) -> None:
    for unit in ("step", "epoch", "eval"):
        assert_resumes_everywhere(lambda setting, unit=unit: scheduled(setting, make, unit))


class Last(Metric):
    """Has no state_dict, but a list, a tensor that is created late, and a function."""

    on = ("train", "val")

    def __init__(self) -> None:
        self._choose = max
        self.reset()

    def reset(self) -> None:
        self._seen: list[float] = []
        self._sum: Tensor | None = None

    def update(self, out: Any, batch: Any) -> None:
        self._seen.append(float(out["sum"].mean()))
        total = out["sum"].sum()
        self._sum = total if self._sum is None else self._sum + total

    def compute(self) -> dict[str, float]:
        assert self._sum is not None
        return {"max": self._choose(self._seen), "sum": float(self._sum)}


def test_training_metrics_resume_within_an_epoch() -> None:
    def build(setting: dict[str, Any]) -> Run:
        mean = MetricAdapter(Mean(), inputs={"value": "out.sum"}, on=("train",))
        return plain(setting, parts={"metrics": {"last": Last(), "mean": mean}})

    assert_resumes_everywhere(build)


class Annealed(Sums):
    """A task whose loss depends on its own count, module and generator."""

    def __init__(self) -> None:
        super().__init__(22)
        self.temperature = 1.0
        self.norm = nn.BatchNorm1d(1)
        self.noise = torch.Generator().manual_seed(3)

    def batch_loss(self, out: Any, batch: Any) -> dict[str, Any]:
        noise = torch.rand(1, generator=self.noise)
        loss = (self.norm(out["sum"]) - batch[1] * self.temperature + noise).square().mean()
        return {"loss": (loss, len(batch[1]))}

    def step_end(self, run: Run) -> None:
        self.temperature *= 0.9


def test_the_attributes_of_a_task_are_resumed() -> None:
    assert_resumes_everywhere(
        lambda setting: make_run(Annealed(), adder(), setting=setting, for_="2ep")
    )


def test_a_checkpoint_of_other_parts_or_hooks_is_refused() -> None:
    state = follow(plain).states[0]
    run = make_run(Sums(22), adder(dropout=0.3))
    with pytest.raises(CheckpointError, match=r"only in the checkpoint: average, monitor"):
        restore_state(run, state)
    del state["average"]
    with pytest.raises(CheckpointError, match=r"missing in the checkpoint: average"):
        resume(plain, state)
    state = follow(plain).states[0]
    hooks = {**state, "hooks": {}}
    with pytest.raises(CheckpointError, match="missing in the checkpoint: Recording#0, Early"):
        resume(plain, hooks)
    with pytest.raises(CheckpointError, match="has no model: it is not the checkpoint of a run"):
        resume(plain, {name: tree for name, tree in state.items() if name != "model"})


def test_missing_parts_are_only_a_warning_if_changes_are_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = follow(plain).states[0]
    run = plain({})
    run.on("run_end", lambda run: restore_state(run, {**state, "hooks": {}}, is_strict=False))
    fit(run)
    assert "hooks do not match those of the run: missing in the checkpoint: Rec" in caplog.text


def test_a_state_that_cannot_be_saved_is_reported_with_part_and_key() -> None:
    class Odd(Hook):
        def state_dict(self) -> dict[str, Any]:
            return {"when": {"it": object()}}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

        def run_end(self, run: Run) -> None:
            serialize_tree(collect_state(run)["hooks"], "hooks")

    with pytest.raises(CheckpointError, match=r"hooks: Odd#0\.when\.it: cannot be kept"):
        fit(make_run(hooks=(Odd(),), for_="1ep"))


def test_the_state_has_caches_and_choices() -> None:
    class Caching(Hook):
        def run_start(self, run: Run) -> None:
            run.register_caches({"scale": (1, 2)})

    states = follow(
        lambda setting: make_run(hooks=(Caching(),), setting=setting, for_="1ep")
    ).states
    assert states[0]["caches"] == {"scale": (1, 2)}
    assert states[0]["choices"]["step"] == "eager"
