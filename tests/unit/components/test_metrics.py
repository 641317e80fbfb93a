"""The built-in metrics."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from epochal.components.metrics import (
    F1,
    R2,
    Accuracy,
    Auroc,
    ConfusionMatrix,
    Mae,
    Mean,
    MeanIou,
    Perplexity,
    PrecisionScore,
    Recall,
    Rmse,
)
from epochal.engine import Metric
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
        Accuracy().update(SCORES[:, 0], torch.zeros(3))
    with pytest.raises(
        TaskError, match=r"mae: preds have shape \(4, 1\) and target has shape \(4,\)"
    ):
        Mae().update(SCORES[:, :1], SCORES[:, 0])
    with pytest.raises(TaskError, match=r"f1: mask has shape \(3,\), the values have shape \(4,\)"):
        F1().update(SCORES, torch.zeros(4), torch.ones(3))


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


def test_targets_that_are_no_classes_are_refused_when_computed() -> None:
    for metric in (F1(), ConfusionMatrix()):
        metric.update(SCORES, torch.tensor([0, 1, 7, 255]))
        with pytest.raises(
            TaskError, match=r"2 targets are not class numbers from 0 to 2\n.*ignore"
        ):
            metric.compute()


def test_scores_that_are_no_numbers_give_not_a_number() -> None:
    scores, target = SCORES.clone(), torch.tensor([1, 0, 2, 0])
    scores[1, 2] = math.nan
    for metric in (Accuracy(), F1(average="micro"), MeanIou(), Auroc(), Perplexity()):
        metric.update(scores, target)
        assert math.isnan(metric.compute()), metric
        metric.reset()
        metric.update(scores, target, torch.tensor([True, False, True, True]))
        assert not math.isnan(metric.compute()), f"{metric} with the bad row masked"
    for metric in (Mae(), Rmse(), R2()):
        metric.update(scores, SCORES)
        assert math.isnan(metric.compute()), metric


METRICS = {
    "accuracy": lambda: Accuracy(),
    "top2": lambda: Accuracy(topk=2),
    **{
        f"{kind.__name__}-{average}": lambda kind=kind, average=average: kind(average=average)
        for kind in (PrecisionScore, Recall, F1, MeanIou)
        for average in ("macro", "micro", "weighted", "none")
    },
    "confusion": lambda: ConfusionMatrix(),
    "normalized": lambda: ConfusionMatrix(normalize=True),
    "auroc": lambda: Auroc(),
    "auroc-none": lambda: Auroc(average="none"),
    "perplexity": lambda: Perplexity(),
}


def reference(name: str):
    """The same metric of torchmetrics."""
    import torchmetrics.classification as of_classes
    from torchmetrics.text import Perplexity as PerplexityOfTorchmetrics

    options = {"num_classes": 3, "ignore_index": -100}
    kind, _, average = name.partition("-")
    names = {"PrecisionScore": "Precision", "Recall": "Recall", "F1": "F1Score"}
    if kind in names or kind == "MeanIou":
        found = getattr(of_classes, f"Multiclass{names.get(kind, 'JaccardIndex')}")
        return found(average=average, **options)
    if kind == "auroc":
        return of_classes.MulticlassAUROC(average=average or "macro", **options)
    return {
        "accuracy": lambda: of_classes.MulticlassAccuracy(average="micro", **options),
        "top2": lambda: of_classes.MulticlassAccuracy(average="micro", top_k=2, **options),
        "confusion": lambda: of_classes.MulticlassConfusionMatrix(**options),
        "normalized": lambda: of_classes.MulticlassConfusionMatrix(normalize="true", **options),
        "perplexity": lambda: PerplexityOfTorchmetrics(ignore_index=-100),
    }[name]()


def as_tensor(value) -> torch.Tensor:
    value = list(value.values()) if isinstance(value, dict) else value
    return torch.as_tensor(value, dtype=torch.float64)


rows = st.lists(
    st.tuples(
        st.lists(st.integers(-8, 8), min_size=3, max_size=3), st.sampled_from([0, 1, 2, -100])
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.filterwarnings("ignore:.* NaN values found in confusion matrix:UserWarning")
@settings(deadline=None, max_examples=30)
@given(batches=st.lists(rows, min_size=1, max_size=3), split=st.integers(0, 3))
def test_classes_are_measured_as_by_torchmetrics_in_one_process_and_merged(batches, split) -> None:
    for name, make in METRICS.items():
        ours, part, theirs = make(), make(), reference(name)
        for index, batch in enumerate(batches):
            scores = torch.tensor([row for row, _ in batch]).double() / 4
            # Without ties: which of equal scores is the highest is not specified.
            scores += torch.tensor([0.0, 1e-3, 2e-3])
            labels = torch.tensor([label for _, label in batch])
            (ours if index >= split else part).update(scores, labels)
            if name == "perplexity":
                theirs.update(scores[None], labels[None])
            else:
                is_area = name.startswith("auroc")
                theirs.update(scores.softmax(dim=1) if is_area else scores, labels)
        ours.merge(part)
        labels = {label for batch in batches for _, label in batch} - {-100}
        if not labels or (name.startswith("auroc") and labels != {0, 1, 2}):
            continue  # torchmetrics gives 0 without samples, where we give not a number
        found, expected = as_tensor(ours.compute()), as_tensor(theirs.compute())
        assert torch.allclose(found, expected, atol=1e-5), name


@settings(deadline=None, max_examples=30)
@given(
    pairs=st.lists(
        st.tuples(st.integers(-8, 8), st.integers(0, 1), st.booleans()), min_size=2, max_size=20
    )
)
def test_two_classes_and_masks_are_measured_as_by_torchmetrics(pairs) -> None:
    import torchmetrics.classification as of_classes

    scores = torch.tensor([score for score, _, _ in pairs]).double() / 4 + 1e-3
    target = torch.tensor([label for _, label, _ in pairs])
    mask = torch.tensor([shown for _, _, shown in pairs])
    if not mask.any():
        return
    both = len(target[mask].unique()) == 2
    for ours, theirs in (
        (Accuracy(), of_classes.BinaryAccuracy()),
        (PrecisionScore(), of_classes.BinaryPrecision()),
        (Recall(average="micro"), of_classes.BinaryRecall()),
        (F1(), of_classes.BinaryF1Score()),
        (MeanIou(), of_classes.BinaryJaccardIndex()),
        *([(Auroc(), of_classes.BinaryAUROC())] if both else []),
    ):
        ours.update(scores[:, None], target, mask)
        theirs.update(scores[mask].sigmoid(), target[mask])
        assert ours.compute() == pytest.approx(float(theirs.compute())), ours


@settings(deadline=None, max_examples=30)
@given(
    pairs=st.lists(
        st.tuples(st.integers(-99, 99), st.integers(-99, 99), st.booleans()),
        min_size=2,
        max_size=20,
    ),
    split=st.integers(0, 20),
)
def test_errors_are_measured_as_by_torchmetrics_and_merged(pairs, split) -> None:
    from torchmetrics.regression import MeanAbsoluteError, MeanSquaredError, R2Score

    preds = torch.tensor([one for one, _, _ in pairs]).double()
    target = torch.tensor([one for _, one, _ in pairs]).double()
    mask = torch.tensor([shown for _, _, shown in pairs])
    if len(target[mask].unique()) < 2:
        return
    for make, theirs in (
        (Mae, MeanAbsoluteError()),
        (Rmse, MeanSquaredError(squared=False)),
        (R2, R2Score()),
    ):
        ours, part = make(), make()
        ours.update(preds[:split], target[:split], mask[:split])
        part.update(preds[split:], target[split:], mask[split:])
        part.merge(ours)
        theirs.update(preds[mask], target[mask])
        assert part.compute() == pytest.approx(float(theirs.compute()), rel=1e-4, abs=1e-4), make


def test_classes_may_be_in_any_dimension() -> None:
    scores, target = torch.randn(2, 5, 3), torch.tensor([[0, 1, 2, 0, 1], [2, 1, 0, 0, 2]])
    for kind in (Accuracy, F1, Perplexity):
        last, first = kind(class_dim=-1), kind()
        last.update(scores, target)
        first.update(scores.movedim(-1, 1), target)
        assert last.compute() == first.compute(), kind


def test_a_metric_with_its_own_state_must_say_how_it_merges() -> None:
    class Own(Metric):
        def reset(self) -> None:
            self.values = []

        def update(self, value) -> None:
            self.values.append(value)

        def compute(self) -> float:
            return sum(self.values)

    with pytest.raises(TaskError, match=r"Own\.merge: is missing(.|\n)*self\.add and self\.keep"):
        Own().merge(Own())
