"""Small runs in stages, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from cells import remake
from engine.parts import Sums, adder, make_run
from epochal.config import parse_duration
from epochal.engine.interfaces.stage import Stage
from epochal.engine.loss.loss import Loss, LossTerm

if TYPE_CHECKING:
    from epochal.engine import Run


def stage(length: str, **given: Any) -> Stage:
    number = given.pop("number", 0)
    key = f"stages.{number}"
    return Stage(**{"name": f"s{number}", "length": parse_duration(length), "key": key, **given})


def stages(*given: tuple[str, dict[str, Any]]) -> tuple[Stage, ...]:
    return tuple(stage(length, number=i, **one) for i, (length, one) in enumerate(given))


def staged(
    *given: tuple[str, dict[str, Any]], task: object = None, model: Any = None, **more: Any
) -> Run:
    """A run of five steps per epoch, with AdamW and a rate of 0.01 that a config describes."""
    model = adder() if model is None else model
    parts = {
        "optimizer": torch.optim.AdamW(model.parameters(), lr=0.01),
        "make_optimizer": remake,
        "stages": stages(*given),
        **more.pop("parts", {}),
    }
    options = {"sanity_batches": 0, "eval_every": 0, **more}
    return make_run(Sums(shuffle=False) if task is None else task, model, parts=parts, **options)


class Mixing(Sums):
    """Gets an argument when a stage starts."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = -1.0
        self.calls: list[tuple[str, float, str]] = []

    def on_stage_start(self, run: Run, name: str, *, mix: float = 0.0, mode: str = "") -> None:
        self.mix = mix
        self.calls.append((name, mix, mode))

    def batch_loss(self, out: dict[str, Any], batch: list[Any]) -> dict[str, Any]:
        loss, count = super().batch_loss(out, batch)["loss"]
        return {"loss": (loss * (1 + self.mix), count)}


class Plain(Sums):
    """Leaves the loss to terms."""

    batch_loss = None  # type: ignore[assignment]


def terms() -> Loss:
    inputs = {"input": "out.sum", "target": "batch.1"}
    functions = {"near": nn.functional.l1_loss, "far": nn.functional.mse_loss}
    weights = {"near": 1.0, "far": 0.0}
    return Loss(
        [LossTerm(one, name=n, weight=weights[n], inputs=inputs) for n, one in functions.items()]
    )
