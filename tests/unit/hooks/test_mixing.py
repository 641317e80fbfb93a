"""Mixup and CutMix: mixed batches and what the task sees."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from epochal.engine.create_run import create_run
from epochal.engine.interfaces.options import Options
from epochal.engine.loss.loss import Loss, LossTerm
from epochal.engine.parts import Parts
from epochal.errors import ConfigError, TaskError
from epochal.hooks.mixing import BatchMixer, CutMix, Mixup
from epochal.testing import TinyModel, TinyTask, execute_run, short_options, tiny_run

IMAGES = torch.arange(16.0).reshape(4, 1, 2, 2)
LABELS = torch.tensor([0, 1, 2, 0])
BATCH = {"id": torch.arange(8).reshape(4, 2), "image": IMAGES, "label": LABELS}


class Sample(NamedTuple):
    image: Tensor
    label: Tensor


def keep(inputs: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Mix nothing and report a kept share of three quarters."""
    return inputs + 100, share * 0 + 0.75


def made_mixer(mix: Any = keep, **options: Any) -> BatchMixer:
    body = {"mix": lambda self, inputs, share: mix(inputs, share)}
    one: BatchMixer = type("Mixup", (BatchMixer,), body)()
    defaults = {"alpha": 1.0, "prob": 1.0, "input": None, "target": None, "classes": 3}
    one._configure(**defaults | options)
    one.setup(SimpleNamespace(device="cpu", task=SimpleNamespace(), **RUN))  # type: ignore[arg-type]
    return one


def mix_batch(batch: Any, *, mix: Any = keep, **given: Any) -> Any:
    return made_mixer(mix, **given).mix_batch(batch)


RUN: dict[str, Any] = {
    "model": SimpleNamespace(training=True),
    "meta": {},
    "replace_task_method": lambda name, function: None,
}
SOFT = torch.tensor([[1, 0, 0], [0.25, 0.75, 0], [0, 0.25, 0.75], [0.75, 0, 0.25]])


def test_targets_become_class_probabilities_of_both_samples() -> None:
    mixed = mix_batch(BATCH)
    assert torch.equal(mixed["label"], SOFT)
    assert torch.equal(mixed["image"], IMAGES + 100)
    assert mixed["id"] is BATCH["id"]
    assert BATCH["label"] is LABELS


@pytest.mark.parametrize("kind", [list, tuple, Sample._make])
def test_the_type_of_a_batch_is_kept(kind: Any) -> None:
    mixed = mix_batch(kind([IMAGES, LABELS]))
    assert type(mixed) is type(kind([IMAGES, LABELS]))
    assert torch.equal(mixed[1], SOFT)


def test_class_probabilities_can_be_mixed_again() -> None:
    again = mix_batch(mix_batch(BATCH))
    torch.testing.assert_close(again["label"], 0.75 * SOFT + 0.25 * SOFT.roll(1, 0))


def test_input_and_target_can_be_named() -> None:
    batch = {"a": IMAGES, "b": IMAGES, "c": LABELS, "d": LABELS}
    mixed = mix_batch(batch, input="b", target="d")
    assert mixed["a"] is IMAGES
    assert mixed["c"] is LABELS
    assert torch.equal(mixed["d"], SOFT)


@pytest.mark.parametrize(
    ("batch", "key"),
    [
        ({"a": IMAGES, "b": IMAGES, "c": LABELS}, "input"),
        ({"a": IMAGES, "c": LABELS, "d": LABELS}, "target"),
        ([IMAGES], "target"),
    ],
)
def test_ambiguous_parts_are_an_error(batch: Any, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"Mixup.{key}: cannot tell which part of the batch"):
        mix_batch(batch)


def test_an_unknown_part_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(TaskError, match=r"no tensor 'imgae'\n  did you mean 'image'"):
        mix_batch(BATCH, input="imgae", target="label")


def test_an_unsupported_batch_type_is_an_error() -> None:
    with pytest.raises(TaskError, match="cannot change a batch that is a SimpleNamespace"):
        mix_batch(SimpleNamespace(image=IMAGES, label=LABELS))


def test_with_probability_zero_nothing_is_mixed() -> None:
    def mix(inputs: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        assert share == 1
        return inputs, share

    mixed = mix_batch(BATCH, mix=mix, prob=0.0)
    assert torch.equal(mixed["label"].argmax(1), LABELS)
    assert mixed["label"].max() == 1


def test_shares_have_the_moments_of_the_beta_distribution() -> None:
    torch.manual_seed(0)
    one = made_mixer(alpha=0.4)
    shares = torch.stack([one._shares.sample() for _ in range(20_000)])
    assert shares.mean().item() == pytest.approx(0.5, abs=0.01)
    assert shares.var().item() == pytest.approx(1 / (4 * (2 * 0.4 + 1)), abs=0.01)


class Watching(TinyTask):
    """Remembers the targets that its methods see."""

    def __init__(self) -> None:
        super().__init__()
        self.meta = {"classes": ["a", "b", "c"]}
        self.seen: dict[str, list[Tensor]] = {"loss": [], "metric": [], "val": []}

    def batch_loss(self, out: Any, batch: Any) -> Any:
        self.seen["loss"].append(batch["label"])
        return super().batch_loss(out, batch)

    def batch_metric(self, out: Any, batch: Any) -> Any:
        self.seen["metric" if out["logits"].requires_grad else "val"].append(batch["label"])
        return super().batch_metric(out, batch)


def test_losses_see_probabilities_metrics_see_classes_and_evaluation_is_unchanged() -> None:
    task = Watching()
    execute_run(tiny_run(Mixup(alpha=1.0), task=task))
    assert all(one.is_floating_point() and one.shape[1] == 3 for one in task.seen["loss"])
    assert all(not one.is_floating_point() for one in task.seen["metric"] + task.seen["val"])
    assert not any(name in vars(task) for name in ("pre_batch_forward", "batch_metric"))


def test_an_unknown_number_of_classes_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"Mixup.classes: the number of classes is unknown"):
        execute_run(tiny_run(Mixup()))


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
    run = create_run(parts, options)
    state: list[Tensor] = []
    run.on("run_start", lambda run: state.append(torch.get_rng_state()))
    execute_run(run)
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
    result = execute_run(create_run(parts, Options()))
    assert result.ok
    assert result.metrics["train/epoch/loss"] > 0


def test_a_rectangle_of_the_previous_sample_is_pasted_and_shares_are_areas() -> None:
    torch.manual_seed(0)
    images = torch.stack([torch.full((2, 8, 8), float(one)) for one in range(4)])
    for share in (0.1, 0.5, 0.9):
        mixed, kept = CutMix().mix(images, torch.tensor(share))
        pasted = mixed[1, 0] == 0  # of sample 0, which is before 1
        assert torch.equal(mixed[1, 0] == 1, ~pasted)
        assert kept.item() == pytest.approx(1 - pasted.float().mean().item())
        rows, columns = pasted.any(1), pasted.any(0)
        assert torch.equal(pasted, rows.unsqueeze(1) & columns)
        for side in (rows, columns):
            inside = side.nonzero().flatten()
            assert len(inside) == 0 or int(inside[-1] - inside[0]) + 1 == len(inside)
        assert torch.equal(mixed[:, 0], mixed[:, 1])


def test_a_share_of_one_changes_nothing() -> None:
    images = torch.randn(4, 1, 8, 8)
    mixed, kept = CutMix().mix(images, torch.tensor(1.0))
    assert torch.equal(mixed, images)
    assert kept == 1


def test_areas_match_the_drawn_shares_on_average() -> None:
    torch.manual_seed(0)
    images = torch.randn(1, 1, 64, 64)
    inner = [float(CutMix().mix(images, torch.tensor(0.96))[1]) for _ in range(400)]
    assert sum(inner) / 400 == pytest.approx(0.96, abs=0.01)  # few meet the border


def test_inputs_that_are_not_images_are_an_error() -> None:
    with pytest.raises(TaskError, match=r"CutMix: needs images .*, got shape \(4, 3\)"):
        CutMix().mix(torch.zeros(4, 3), torch.tensor(0.5))


class Squares(TinyTask):
    def pre_batch_forward(self, batch: Any) -> Any:
        return {**batch, "x": batch["x"].reshape(-1, 1, 2, 2)}


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1))


def test_a_run_trains_and_the_methods_of_the_task_are_restored() -> None:
    model, task = Flat(), Squares()
    parts = Parts(
        task=task,
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        hooks=(CutMix(classes=3), CutMix(classes=3, prob=0.5)),
    )
    assert execute_run(create_run(parts, short_options())).ok
    assert "pre_batch_forward" not in vars(task)
