"""Mixed batches: inputs and targets found, the result, and what the task sees."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from epochal.errors import ConfigError, TaskError
from epochal.hooks.mixing import BatchMixer, Mixup
from epochal.testing import TinyTask, carry_out, tiny_run

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
    carry_out(tiny_run(Mixup(alpha=1.0), task=task))
    assert all(one.is_floating_point() and one.shape[1] == 3 for one in task.seen["loss"])
    assert all(not one.is_floating_point() for one in task.seen["metric"] + task.seen["val"])
    assert not any(name in vars(task) for name in ("pre_batch_forward", "batch_metric"))


def test_an_unknown_number_of_classes_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"Mixup.classes: the number of classes is unknown"):
        carry_out(tiny_run(Mixup()))
