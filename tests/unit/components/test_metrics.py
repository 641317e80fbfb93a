"""Metrics: values, and tensors found by name."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from epochal.components.metrics import Accuracy, Mean, get_tensor_by_path
from epochal.errors import ConfigError, TaskError

SCORES = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.6, 0.1, 0.3]])


def measure(metric: Accuracy, *batches: tuple[torch.Tensor, list[int]]) -> float:
    metric.reset()
    for scores, labels in batches:
        metric.update({"logits": scores}, {"label": torch.tensor(labels)})
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
    metric.update({"logits": scores}, {"label": torch.ones(2, 5, dtype=torch.int64)})
    assert metric.compute() == 1.0


def test_output_and_target_are_found_by_their_names() -> None:
    metric = Accuracy(output="head.scores", target="1")
    metric.update({"head": {"scores": SCORES}}, (None, torch.tensor([1, 0, 2, 1])))
    assert metric.compute() == 0.75


def test_update_reads_nothing_from_the_device() -> None:
    metric = Accuracy()
    on_meta = torch.zeros(4, 3, device="meta")  # any read of a meta tensor raises
    metric.update({"logits": on_meta}, {"label": torch.zeros(4, dtype=torch.int64)})


def test_missing_output_suggests_the_nearest_name() -> None:
    with pytest.raises(TaskError, match=r"accuracy: no 'logits' in the output(.|\n)*'logit'\?"):
        Accuracy().update({"logit": SCORES}, {"label": torch.zeros(4)})


def test_shapes_that_do_not_match_are_shown() -> None:
    with pytest.raises(TaskError, match=r"shape \(4, 3\) and 'label' has shape \(4, 3\)"):
        Accuracy().update({"logits": SCORES}, {"label": SCORES})
    with pytest.raises(TaskError, match=r"shape \(4,\)(.|\n)*scores must be \(batch, classes"):
        Accuracy().update({"logits": SCORES[:, 0]}, {"label": torch.zeros(4)})


def test_topk_above_the_number_of_classes_is_refused() -> None:
    with pytest.raises(TaskError, match=r"topk is 5(.|\n)*set topk to at most 3"):
        measure(Accuracy(topk=5), (SCORES, [0, 0, 0, 0]))


def test_topk_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"metrics\.topk: must be at least 1, got 0"):
        Accuracy(topk=0)


def test_every_element_has_the_same_weight() -> None:
    metric = Mean(of="out.x")
    metric.reset()
    for values in ([1.0], [2.0, 3.0, 6.0]):
        metric.update({"x": torch.tensor(values)}, None)
    assert metric.compute() == 3.0


def test_integer_tensors_of_batches_are_averaged() -> None:
    metric = Mean(of="batch.length")
    metric.update({}, {"length": torch.tensor([1, 2])})
    assert metric.compute() == 1.5


def test_long_sums_are_exact() -> None:
    metric = Mean(of="out.x")
    metric.update({"x": torch.full((1,), 2.0**24)}, None)
    for _ in range(3):
        metric.update({"x": torch.ones(1)}, None)
    assert metric.compute() == (2**24 + 3) / 4


def test_reset_forgets_and_nothing_gives_not_a_number() -> None:
    metric = Mean(of="out.x")
    metric.update({"x": torch.ones(3)}, None)
    metric.reset()
    assert math.isnan(metric.compute())


def test_a_tensor_must_be_in_the_output_or_the_batch() -> None:
    for of in ("x", "output.x", "out.", "out", ""):
        with pytest.raises(ConfigError, match=r"metrics\.of: must be out\.<name> or batch\.<name>"):
            Mean(of=of)


def test_a_value_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(TaskError, match="mean: 'x' in the output is a str, not a tensor"):
        Mean(of="out.x").update({"x": "text"}, None)


TENSOR = torch.ones(2)


def test_tensors_are_found_by_keys_attributes_and_positions() -> None:
    for source, path in (
        ({"x": TENSOR}, "x"),
        ({"a": {"x": TENSOR}}, "a.x"),
        ((None, TENSOR), "1"),
        ([{"x": TENSOR}], "0.x"),
        (SimpleNamespace(x=TENSOR), "x"),
        ({"a": SimpleNamespace(x=[TENSOR])}, "a.x.0"),
    ):
        assert get_tensor_by_path(source, path, reader="mean", of="the batch") is TENSOR


def test_a_missing_name_lists_the_known_ones() -> None:
    for source, path, hint in (
        ({"labels": TENSOR}, "label", "did you mean 'labels'"),
        ((TENSOR,), "1", "known: 0"),
        (SimpleNamespace(image=TENSOR), "imgae", "did you mean 'image'"),
        (3, "x", "name a key, an attribute or a position"),
    ):
        with pytest.raises(TaskError, match=rf"mean: no '{path}' in the batch(.|\n)*{hint}"):
            get_tensor_by_path(source, path, reader="mean", of="the batch")
