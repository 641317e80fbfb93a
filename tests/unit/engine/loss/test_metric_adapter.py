"""Metrics of torchmetrics and functions as metrics of a run."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
import torchmetrics
from torch import Tensor, nn

from engine.parts import fit, make_run
from epochal.components.metrics import Accuracy, Mean
from epochal.engine import Metric, Test
from epochal.engine.execute import execute
from epochal.engine.loss.metric_adapter import MetricAdapter, adapt_metric
from epochal.errors import ConfigError, Place, TaskError

LOGITS = torch.tensor([[2.0, 0.0], [0.5, 1.5], [1.0, 0.0]])
LABEL = torch.tensor([0, 1, 1])
OUT, BATCH = {"logits": LOGITS, "note": "text"}, {"image": torch.zeros(3, 4), "label": LABEL}


def measure(metric: Any, *pairs: tuple[Any, Any]) -> Any:
    adapted = adapt_metric(metric)
    adapted.reset()
    for out, batch in pairs or ((OUT, BATCH),):
        adapted.update(out, batch)
    return adapted.compute()


def test_metrics_of_torchmetrics_are_fed_by_name() -> None:
    f1 = torchmetrics.F1Score(task="multiclass", num_classes=2, average="macro")
    expected = f1(LOGITS, LABEL).item()
    assert measure(f1) == pytest.approx(expected)
    assert measure(f1, (LOGITS, (None, LABEL))) == pytest.approx(expected)  # a bare tensor, a pair
    named = MetricAdapter(f1, inputs={"preds": "out.a.logits", "target": "batch.1"})
    assert measure(named, ({"a": OUT, "b": LOGITS}, (None, LABEL))) == pytest.approx(expected)


def test_several_values_of_torchmetrics_get_their_own_names() -> None:
    recall = torchmetrics.Recall(task="multiclass", num_classes=2, average=None)
    assert measure(recall) == {"0": 1.0, "1": 0.5}
    both = torchmetrics.MetricCollection({"recall": recall, "mse": torchmetrics.MeanSquaredError()})
    routes = {"preds": "batch.label", "target": "batch.label"}
    found = measure(MetricAdapter(both, inputs=routes))
    assert found == {"recall/0": 1.0, "recall/1": 1.0, "mse": 0.0}


def collection() -> torchmetrics.MetricCollection:
    """Two metrics that share their state, and one that does not."""
    options: Any = {"task": "multiclass", "num_classes": 2, "average": "macro"}
    return torchmetrics.MetricCollection(
        {
            "recall": torchmetrics.Recall(**options),
            "f1": torchmetrics.F1Score(**options),
            "kappa": torchmetrics.CohenKappa(task="multiclass", num_classes=2),
        }
    )


def test_metrics_and_collections_continue_from_a_saved_state() -> None:
    more = {"logits": -LOGITS}, BATCH
    for make in (collection, lambda: torchmetrics.AUROC(task="multiclass", num_classes=2)):
        routes = {"preds": "out.logits", "target": "batch.label"}
        whole, first, resumed = (MetricAdapter(make(), inputs=routes) for _ in range(3))
        for part in ((OUT, BATCH), more, more):
            whole.update(*part)
        first.update(OUT, BATCH)
        resumed.state_part.load_state_dict(copy.deepcopy(first.state_part.state_dict()))
        for metric in (first, resumed):
            metric.update(*more)
        saved = copy.deepcopy(first.state_part.state_dict())
        first.update(*more)
        first.state_part.load_state_dict(saved)  # a rollback
        for metric in (first, resumed):
            metric.update(*more)
            assert metric.compute() == whole.compute(), make


def test_metrics_of_torchmetrics_merge() -> None:
    def make() -> MetricAdapter:
        return MetricAdapter(torchmetrics.F1Score(task="multiclass", num_classes=2))

    whole, one, other = make(), make(), make()
    for metrics, logits in ((whole, one), LOGITS), ((whole, other), -LOGITS):
        for metric in metrics:
            metric.update({"logits": logits}, BATCH)
    one.merge(other)
    assert one.compute() == whole.compute()


def test_metrics_of_any_kind_merge() -> None:
    def share(logits: Tensor, label: Tensor) -> Tensor:
        return logits.argmax(1).eq(label).float().mean()

    routes = {"preds": "out.logits", "target": "batch.label"}
    for make, inputs in (
        (collection, routes),
        (lambda: torchmetrics.AUROC(task="multiclass", num_classes=2), routes),
        (lambda: share, None),
        (Accuracy, None),
    ):
        whole, one, other, empty = (MetricAdapter(make(), inputs=inputs) for _ in range(4))
        for metrics, logits in ((whole, one), LOGITS), ((whole, other), -LOGITS[:1]):
            for metric in metrics:
                metric.update({"logits": logits}, {"label": BATCH["label"][: len(logits)]})
        empty.merge(one)
        empty.merge(other)
        empty.merge(MetricAdapter(make(), inputs=inputs))  # a process without batches
        assert empty.compute() == whole.compute(), make

    class Odd:
        def reset(self) -> None: ...
        def update(self, logits: Tensor) -> None: ...
        def compute(self) -> float: ...

    with pytest.raises(TaskError, match="Odd has no method merge"):
        MetricAdapter(Odd()).merge(MetricAdapter(Odd()))


def test_values_that_are_no_numbers_are_refused() -> None:
    for metric, shown in ((torchmetrics.ROC(task="multiclass", num_classes=2), "several parts"),):
        with pytest.raises(TaskError, match=rf"metrics: Multiclass\w+ computes .* of {shown}, not"):
            measure(metric)


def test_an_error_of_a_foreign_metric_names_the_metric() -> None:
    kappa = torchmetrics.CohenKappa(task="multiclass", num_classes=3)
    adapter = MetricAdapter(
        kappa, inputs={"preds": "out.logits", "target": "batch.label"}, key="metrics.2"
    )
    with pytest.raises(ValueError, match="number of classes") as caught:
        adapter.update({"logits": torch.zeros(4, 5)}, {"label": torch.zeros(4, dtype=torch.long)})
    assert caught.value.__notes__ == [
        "metrics.2: MulticlassCohenKappa raised this while it was fed"
    ]


def test_a_function_is_averaged_over_batches_by_their_items() -> None:
    def confidence(logits: Tensor) -> Tensor:
        return logits.mean()

    def share(logits: Tensor, label: Tensor) -> tuple[float, int]:
        return float(logits.argmax(1).eq(label).float().mean()), len(label)

    pairs = (({"logits": torch.ones(1, 2)}, {"label": torch.tensor([1])}), (OUT, BATCH))
    assert measure(confidence, *pairs) == pytest.approx((1 + 3 * LOGITS.mean().item()) / 4)
    assert measure(share, *pairs) == pytest.approx(2 / 4)
    assert measure(nn.CrossEntropyLoss()) == pytest.approx(nn.CrossEntropyLoss()(LOGITS, LABEL))


def test_functions_that_return_no_number_are_refused() -> None:
    for result, message in (
        (None, "returned None, not a number"),
        (torch.ones(2), r"returned a tensor of shape \(2,\), not one number"),
    ):
        with pytest.raises(TaskError, match=f"metrics: .*lambda> {message}"):
            measure(lambda logits, result=result: result)
    with pytest.raises(TaskError, match=r"the batch has no known size\n  return \(value, count\)"):
        measure(lambda out: 1.0, (LOGITS, "text"))


def test_built_in_metrics_take_their_inputs_in_the_same_way() -> None:
    assert measure(Accuracy()) == pytest.approx(2 / 3)
    assert measure(Mean()) == pytest.approx(LOGITS.mean().item())
    of_batch = MetricAdapter(Mean(), inputs={"value": "batch.label"})
    assert measure(of_batch) == pytest.approx(2 / 3)


def test_a_metric_that_takes_output_and_batch_stays_itself() -> None:
    class Whole(Metric):
        on = ("train",)

        def reset(self) -> None: ...

        def update(self, out: Any, batch: Any) -> None: ...

        def compute(self) -> float:
            return 1.0

    class Part(Whole):
        def update(self, logits: Tensor) -> None:
            self.seen = logits

    whole, part = Whole(), Part()
    assert adapt_metric(whole) is whole
    assert measure(part) == 1.0
    assert part.seen is LOGITS
    assert adapt_metric(part).on == ("train",)
    assert MetricAdapter(part, on=["dev"], name="b").on == ("val",)


def test_wrong_inputs_are_an_error_with_their_place() -> None:
    place = Place("a.yaml", 3, 5)
    with pytest.raises(ConfigError, match=r"metrics.0.inputs.logit: Accuracy has no argument"):
        MetricAdapter(Accuracy(), inputs={"logit": "out"}, key="metrics.0", place=place)
    metric = MetricAdapter(Accuracy(), inputs={"logits": "out.score"}, key="metrics.0", place=place)
    with pytest.raises(ConfigError, match=r"no 'out.score'; out is a dict\n  set in a.yaml:3:5"):
        metric.update(OUT, BATCH)
    with pytest.raises(ConfigError, match=r"metrics.inputs: cannot tell which part is 'target'"):
        measure(Accuracy(), (OUT, {"image": LOGITS, "size": LABEL}))
    with pytest.raises(TaskError, match=r"MetricCollection has no readable signature"):
        MetricAdapter(torchmetrics.MetricCollection([torchmetrics.MeanSquaredError()]))
    with pytest.raises(
        TaskError, match=r"metrics: int is not a metric\n  give an object with update"
    ):
        adapt_metric(3)


def test_a_run_measures_torchmetrics_and_functions_in_training_and_evaluation() -> None:
    mse = MetricAdapter(torchmetrics.MeanSquaredError(), on=("train", "val", "test"))
    metrics = {"mse": mse, "l1": torchmetrics.MeanAbsoluteError(), "own": nn.L1Loss()}
    result = fit(make_run(for_="2ep", eval_loss=True, parts={"metrics": metrics}))
    assert result.metrics["val/mse"] == pytest.approx(result.metrics["val/loss"], rel=1e-5)
    assert result.metrics["val/l1"] == pytest.approx(result.metrics["val/mae"], rel=1e-5)
    assert result.metrics["val/own"] == pytest.approx(result.metrics["val/mae"], rel=1e-5)
    assert result.metrics["train/epoch/mse"] == pytest.approx(
        result.metrics["train/epoch/loss"], rel=1e-5
    )
    tested = execute(make_run(parts={"metrics": {"l1": metrics["l1"]}}), Test(), raise_errors=True)
    assert {"test/l1", "test/mae"} <= tested.metrics.keys()


def test_metrics_are_moved_to_the_device_of_the_run() -> None:
    metric = torchmetrics.MeanSquaredError()
    run = make_run(parts={"metrics": {"mse": metric}}, setting={"device": torch.device("meta")})
    assert run.metrics["mse"].metric is metric
    assert metric.device.type == "meta"


def test_states_of_torchmetrics_are_saved_and_restored() -> None:
    for make in (
        torchmetrics.MeanSquaredError,
        lambda: torchmetrics.AUROC(task="binary"),  # a list of tensors
    ):
        one, other = MetricAdapter(make()), MetricAdapter(make())
        batch = {"target": torch.tensor([0, 1, 1])}
        one.update(torch.tensor([0.1, 0.8, 0.3]), batch)
        other.state_part.load_state_dict(copy.deepcopy(one.state_part.state_dict()))
        for metric in (one, other):
            metric.update(torch.tensor([0.6, 0.2, 0.9]), batch)
        assert one.compute() == other.compute()


def test_an_adapter_is_freed_without_garbage_collection() -> None:
    adapter = MetricAdapter(lambda logits: logits.mean())
    reference = weakref.ref(adapter)
    gc.disable()
    try:
        del adapter
        assert reference() is None
    finally:
        gc.enable()
