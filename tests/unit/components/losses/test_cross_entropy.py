from __future__ import annotations

import torch
from torch.nn import functional
from torch.profiler import profile

from epochal.components.losses.cross_entropy import CrossEntropy

torch.manual_seed(0)
LOGITS = torch.randn(6, 4)
LABELS = torch.tensor([0, 3, 1, 1, 2, 0])


def test_it_equals_torchs_exactly() -> None:
    value, count = CrossEntropy()(LOGITS, LABELS)
    assert torch.equal(value, functional.cross_entropy(LOGITS, LABELS))
    assert count == 6


def test_label_smoothing_equals_its_closed_form() -> None:
    value, _ = CrossEntropy(label_smoothing=0.1)(LOGITS, LABELS)
    logs = LOGITS.log_softmax(1)
    right = logs.gather(1, LABELS.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(value, -(0.9 * right + 0.1 * logs.mean(1)).mean())


def test_class_weights_equal_those_of_torch() -> None:
    weights = [1.0, 2.0, 0.5, 3.0]
    value, _ = CrossEntropy(class_weights=weights)(LOGITS, LABELS)
    wanted = functional.cross_entropy(LOGITS, LABELS, torch.tensor(weights))
    assert torch.equal(value, wanted)


def test_ignored_targets_do_not_count() -> None:
    for weights in (None, [1.0, 2.0, 0.5, 3.0]):
        for smoothing in (0.0, 0.1):
            labels = torch.tensor([0, -1, 1, -1, 2, 0])
            loss = CrossEntropy(class_weights=weights, label_smoothing=smoothing, ignore_index=-1)
            value, count = loss(LOGITS, labels)
            tensor = None if weights is None else torch.tensor(weights)
            wanted = functional.cross_entropy(
                LOGITS, labels, tensor, ignore_index=-1, label_smoothing=smoothing
            )
            torch.testing.assert_close(value, wanted)
            assert int(count) == 4, weights


def test_smoothing_with_weights_equals_torchs_without_waiting_for_the_device() -> None:
    weights, labels = torch.tensor([1.0, 2.0, 0.5, 3.0]), torch.tensor([0, -100, 1, 1, 2, 0])
    loss = CrossEntropy(class_weights=weights.tolist(), label_smoothing=0.1)
    with profile() as seen:
        value, _ = loss(LOGITS, labels)
    assert "aten::masked_select" not in {event.name for event in seen.events()}
    wanted = functional.cross_entropy(LOGITS, labels, weights, label_smoothing=0.1)
    torch.testing.assert_close(value, wanted)


def test_microbatches_with_class_weights_add_up_to_the_batch() -> None:
    for ignored in (None, 2):
        loss = CrossEntropy(class_weights=[1.0, 2.0, 0.5, 3.0], ignore_index=ignored)
        whole, weight = loss(LOGITS, LABELS)
        parts = [loss(LOGITS[rows], LABELS[rows]) for rows in (slice(0, 1), slice(1, 6))]
        torch.testing.assert_close(sum(value * count for value, count in parts) / weight, whole)


def test_a_batch_of_ignored_targets_has_no_loss_and_no_gradient() -> None:
    logits = LOGITS.clone().requires_grad_()
    value, count = CrossEntropy(ignore_index=-1)(logits, torch.full((6,), -1))
    value.backward()
    assert (value.item(), int(count)) == (0.0, 0)
    assert logits.grad is not None
    assert not logits.grad.any()


def test_targets_may_be_probabilities() -> None:
    soft = torch.rand(6, 4).softmax(1)
    value, count = CrossEntropy()(LOGITS, soft)
    assert torch.equal(value, functional.cross_entropy(LOGITS, soft))
    assert count == 6


def test_each_element_of_dense_targets_counts() -> None:
    logits, labels = torch.randn(2, 3, 5, 5), torch.randint(3, (2, 5, 5))
    value, count = CrossEntropy()(logits, labels)
    assert torch.equal(value, functional.cross_entropy(logits, labels))
    assert count == 50
