"""The built-in metrics."""

from __future__ import annotations

import math

import pytest
import torch

from epochal.components.metrics import Accuracy, Mean
from epochal.errors import ConfigError, TaskError

SCORES = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.6, 0.1, 0.3]])


def measure(metric: Accuracy, *batches: tuple[torch.Tensor, list[int]]) -> float:
    metric.reset()
    for scores, labels in batches:
        metric.update(scores, torch.tensor(labels))
    return metric.compute()


def test_accuracy_is_the_share_of_hits_over_all_samples() -> None:
    assert measure(Accuracy(), (SCORES, [1, 0, 0, 0])) == 0.75


def test_batches_are_weighted_by_their_samples() -> None:
    small, large = (SCORES[:1], [0]), (SCORES[1:], [0, 2, 0])
    assert measure(Accuracy(), small, large) == 0.75


def test_topk_counts_a_target_among_the_highest_scores() -> None:
    assert measure(Accuracy(topk=2), (SCORES, [2, 2, 1, 1])) == 0.5


def test_reset_forgets_earlier_batches() -> None:
    metric = Accuracy()
    assert measure(metric, (SCORES, [0, 1, 0, 1])) == 0.0
    assert measure(metric, (SCORES, [1, 0, 2, 0])) == 1.0


def test_ignored_targets_count_neither_as_hit_nor_as_miss() -> None:
    assert measure(Accuracy(), (SCORES, [1, -100, 0, -100])) == 0.5
    assert measure(Accuracy(ignore_index=7), (SCORES, [7, 0, 7, 7])) == 1.0


def test_no_samples_give_not_a_number() -> None:
    assert math.isnan(measure(Accuracy()))
    assert math.isnan(measure(Accuracy(), (SCORES, [-100] * 4)))


def test_classes_are_along_dimension_one() -> None:
    scores = torch.zeros(2, 3, 5)
    scores[:, 1] = 1.0
    metric = Accuracy()
    metric.update(scores, torch.ones(2, 5, dtype=torch.int64))
    assert metric.compute() == 1.0


def test_update_reads_nothing_from_the_device() -> None:
    metric = Accuracy()
    on_meta = torch.zeros(4, 3, device="meta")  # any read of a meta tensor raises
    metric.update(on_meta, torch.zeros(4, dtype=torch.int64))


def test_shapes_that_do_not_match_are_shown() -> None:
    with pytest.raises(TaskError, match=r"shape \(4, 3\) and target has shape \(4, 3\)"):
        Accuracy().update(SCORES, SCORES)
    with pytest.raises(TaskError, match=r"shape \(4,\)(.|\n)*logits must be \(batch, classes"):
        Accuracy().update(SCORES[:, 0], torch.zeros(4))


def test_topk_above_the_number_of_classes_is_refused() -> None:
    with pytest.raises(TaskError, match=r"topk is 5(.|\n)*set topk to at most 3"):
        measure(Accuracy(topk=5), (SCORES, [0, 0, 0, 0]))


def test_topk_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"metrics\.topk: must be at least 1, got 0"):
        Accuracy(topk=0)


def test_every_element_has_the_same_weight() -> None:
    metric = Mean()
    metric.reset()
    for values in ([1.0], [2.0, 3.0, 6.0]):
        metric.update(torch.tensor(values))
    assert metric.compute() == 3.0


def test_integer_tensors_of_batches_are_averaged() -> None:
    metric = Mean()
    metric.update(torch.tensor([1, 2]))
    assert metric.compute() == 1.5


def test_long_sums_are_exact() -> None:
    metric = Mean()
    metric.update(torch.full((1,), 2.0**24))
    for _ in range(3):
        metric.update(torch.ones(1))
    assert metric.compute() == (2**24 + 3) / 4


def test_reset_forgets_and_nothing_gives_not_a_number() -> None:
    metric = Mean()
    metric.update(torch.ones(3))
    metric.reset()
    assert math.isnan(metric.compute())


def test_a_value_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(TaskError, match=r"mean: value is a str, not a tensor\n.*`inputs:`"):
        Mean().update("text")
    with pytest.raises(TaskError, match="accuracy: target is a list, not a tensor"):
        Accuracy().update(SCORES, [1, 2])
