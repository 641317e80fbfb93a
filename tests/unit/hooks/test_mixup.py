from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from epochal.engine import Run
from epochal.engine.parts import Options, Parts
from epochal.engine.step.loss import Loss, LossTerm
from epochal.hooks.mixing import Mixup
from epochal.testing import TinyModel, TinyTask, carry_out, short_options


def test_inputs_are_mixed_with_the_previous_sample() -> None:
    x = torch.randn(4, 3)
    mixed, share = Mixup().mix(x, torch.tensor(0.7))
    torch.testing.assert_close(mixed, 0.7 * x + 0.3 * torch.stack([x[3], x[0], x[1], x[2]]))
    assert share == torch.tensor(0.7)


def test_training_equals_a_hand_written_loop() -> None:
    batches: list[Any] = []

    class Noting(TinyTask):
        def pre_batch_forward(self, batch: Any) -> Any:
            batches.append(batch)
            return batch

    torch.manual_seed(0)
    model = TinyModel(dropout=0.0)
    torch.manual_seed(0)
    other = TinyModel(dropout=0.0)
    options = short_options(for_="1ep", eval_every=0, sanity_batches=0)
    parts = Parts(
        task=Noting(),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        hooks=(Mixup(alpha=0.5, classes=3),),
    )
    run = Run(parts, options)
    state: list[Tensor] = []
    run.on("run_start", lambda run: state.append(torch.get_rng_state()))
    carry_out(run)
    torch.set_rng_state(state[0])
    alpha = torch.full((), 0.5)
    beta = torch.distributions.Beta(alpha, alpha)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for batch in batches:
        share = beta.sample()
        x, hot = batch["x"], functional.one_hot(batch["label"], 3).float()
        x = torch.lerp(x.roll(1, 0), x, share)
        optimizer.zero_grad()
        functional.cross_entropy(other(x), torch.lerp(hot.roll(1, 0), hot, share)).backward()
        optimizer.step()
    assert torch.equal(model.linear.weight, other.linear.weight)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_loss_of_the_config_works(smoothing: float) -> None:
    class Bare(TinyTask):
        batch_loss = None  # type: ignore[assignment]

    from epochal.components.losses import CrossEntropy

    model: nn.Module = TinyModel()
    inputs = {"input": "out.logits", "target": "batch.label"}
    loss = Loss([LossTerm(CrossEntropy(label_smoothing=smoothing), inputs=inputs)])
    parts = Parts(
        task=Bare(),
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        hooks=(Mixup(classes=3),),
        loss=loss,
    )
    result = carry_out(Run(parts, Options()))
    assert result.ok
    assert result.metrics["train/loss"] > 0
