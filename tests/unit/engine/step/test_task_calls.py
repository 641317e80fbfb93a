"""Tests of the only caller of task methods."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.parts import Sums, fit, make_run
from epochal.engine import Member, MemberOptions, Optimizers, Run, Task, Test
from epochal.engine.execute import execute
from epochal.engine.interfaces.task import ModuleTask
from epochal.engine.step.task_calls import TaskCalls
from epochal.errors import TaskError


class Recorder(Task):
    """Writes down every call, in training and evaluation."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.train_loader = [torch.ones(2, 3)]
        self.val_loader = [torch.ones(2, 3)]

    def to(self, device: torch.device) -> None:
        self.calls.append(f"to {device}")

    def pre_batch_forward(self, batch: Tensor) -> Tensor:
        self.calls.append("pre")
        return batch

    def batch_forward(self, model: nn.Module, batch: Tensor) -> dict[str, Tensor]:
        self.calls.append("forward")
        return {"y": model(batch)}

    def post_batch_forward(self, out: Any, batch: Tensor) -> Any:
        self.calls.append("post")
        return out

    def batch_metric(self, out: Any, batch: Tensor) -> dict[str, Any]:
        self.calls.append("metric")
        return {"m": (1.0, 2)}

    def batch_loss(self, out: Any, batch: Tensor) -> dict[str, Any]:
        self.calls.append("loss")
        return {"loss": (out["y"].mean(), 2)}

    def extra_batch_metrics(self, model: nn.Module) -> dict[str, Any]:
        self.calls.append("extra")
        return {"norm": (next(model.parameters()).norm(), 1)}

    def epoch_metric(self, run: Run) -> dict[str, float]:
        self.calls.append("epoch_metric")
        return {"auc": 0.5}

    def post_metric_to_err(self, result: dict[str, float]) -> float:
        self.calls.append(f"err of {sorted(result)}")
        return 1 - result["auc"]

    def batch_end(self, split: str) -> None:
        self.calls.append(f"batch_end {split}")


class Watched(torch.optim.SGD):
    """An optimizer that writes into the same list."""

    calls: list[str]

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.calls.append("zero_grad")
        super().zero_grad(set_to_none)

    def step(self, closure: Any = None) -> None:
        self.calls.append("step")
        super().step()


def recorded(**options: Any) -> list[str]:
    task, model = Recorder(), nn.Linear(3, 1)
    optimizer = Watched(model.parameters(), lr=0.1)
    optimizer.calls = task.calls
    model.weight.register_hook(lambda grad: task.calls.append("backward"))
    run = make_run(task, model, parts={"optimizer": optimizer}, for_="1ep", **options)
    fit(run)
    return task.calls


EVAL = ["epoch_metric", "err of ['auc', 'm', 'norm']"]


def test_task_methods_are_called_in_the_agreed_order() -> None:
    train = ["pre", "forward", "post", "metric", "loss", "zero_grad", "backward", "step", "extra"]
    evaluation = ["pre", "forward", "post", "metric", "extra", "batch_end val", *EVAL]
    assert recorded(sanity_batches=0) == ["to cpu", *train, "batch_end train", *evaluation]


def test_the_sanity_evaluation_calls_the_task_but_no_hook() -> None:
    # The task gets its events: it may prepare at one what it needs at the next.
    sanity = ["pre", "forward", "post", "metric", "extra", "batch_end val", *EVAL]
    assert recorded(eval_every=0)[1 : 1 + len(sanity)] == sanity


def test_the_loss_is_computed_in_evaluation_only_on_request() -> None:
    evaluation = ["pre", "forward", "post", "metric", "loss", "extra", "batch_end val", *EVAL[:1]]
    calls = recorded(sanity_batches=0, eval_loss=True)
    assert calls[-len(evaluation) - 1 : -1] == evaluation
    assert calls[-1] == "err of ['auc', 'loss', 'm', 'norm']"


def test_batch_loss_may_take_the_loss_function() -> None:
    class Asking(Sums):
        loss_fn = nn.L1Loss()

        def batch_loss(self, out: Any, batch: Any, loss_fn: nn.Module) -> Any:
            return {"loss": (loss_fn(out["sum"], batch[1]), len(batch[1]))}

    assert fit(make_run(Asking(), for_="1ep")).metrics["train/epoch/loss"] > 0


def test_extra_metrics_take_any_argument_by_name() -> None:
    class Asking(Sums):
        def extra_batch_metrics(
            self, run: Run, losses: Any, out: Any, batch: Any, model: nn.Module
        ) -> Any:
            assert run.model is model
            assert not torch.is_grad_enabled()
            return {"twice": (2 * losses["loss"][0].detach(), len(batch[1]))} if losses else {}

    metrics = fit(make_run(Asking(), for_="1ep")).metrics
    assert metrics["train/epoch/twice"] == pytest.approx(2 * metrics["train/epoch/loss"])


def failing(method: str, value: Any) -> type[Sums]:
    return type("Failing", (Sums,), {method: lambda self, out, batch: value})


@pytest.mark.parametrize(
    ("method", "value", "what"),
    [
        ("batch_loss", {}, "returned no 'loss'"),
        ("batch_loss", {"loss": (0.5, 4)}, "'loss' is 0.5, not a tensor"),
        ("batch_loss", {"loss": (torch.zeros(()), 0)}, "'loss' has the count 0"),
        ("batch_loss", {"loss": (torch.zeros(()), 4)}, "does not depend on any trained parameter"),
        ("batch_metric", {"mae": 1.0}, "'mae' is 1.0"),
        ("batch_metric", {"loss": (1.0, 4)}, "returns 'loss', which batch_loss returns too"),
    ],
)
def test_errors_name_method_epoch_and_batch(method: str, value: Any, what: str) -> None:
    task = failing(method, value)(val=0)
    with pytest.raises(TaskError, match=rf"Failing.{method}: .*{what}.*\n.*\n") as caught:
        fit(make_run(task, for_="2ep"))
    assert "\n  in epoch 1, batch 1 of train\n" in str(caught.value)


def test_errors_in_a_later_epoch_name_epoch_and_batch() -> None:
    class Late(Sums):
        seen = 0

        def batch_loss(self, out: Any, batch: Any) -> Any:
            self.seen += 1
            return super().batch_loss(out, batch) if self.seen < 8 else {}

    with pytest.raises(TaskError, match="in epoch 2, batch 3 of train"):
        fit(make_run(Late(val=0), for_="2ep"))


def test_metric_entries_without_items_are_ignored() -> None:
    task = failing("batch_metric", {"rare": (7.0, 0), "mae": (1.0, 1)})()
    metrics = fit(make_run(task, for_="1ep")).metrics
    assert "val/rare" not in metrics
    assert metrics["val/mae"] == 1.0


@pytest.mark.parametrize("method", ["batch_forward", "batch_loss"])
def test_a_missing_method_says_what_to_write(method: str) -> None:
    class Bare(Task):
        train_loader = (torch.ones(2, 3),)

    if method == "batch_loss":
        Bare.batch_forward = lambda self, model, batch: model(batch)
    with pytest.raises(TaskError, match=rf"Bare.{method}: the task has no .*\n.*\n  write def"):
        fit(make_run(Bare(), for_="1ep"))


def test_an_epoch_metric_that_is_no_mapping_is_refused() -> None:
    class Wrong(Sums):
        def epoch_metric(self) -> float:
            return 0.5

    with pytest.raises(TaskError, match=r"Wrong.epoch_metric: returned 0.5"):
        execute(make_run(Wrong()), Test(), raise_errors=True)


def test_evaluation_needs_no_loss_method() -> None:
    class Measured(Task):
        test_loader = (torch.ones(2, 3),)

        def batch_forward(self, model: nn.Module, batch: Tensor) -> Tensor:
            return model(batch)

        def batch_metric(self, out: Tensor, batch: Tensor) -> Any:
            return {"one": (1.0, 2)}

    result = execute(make_run(Measured(), parts={"optimizer": None}), Test())
    assert result.metrics == {"test/one": 1.0}


def test_a_forgotten_return_is_named() -> None:
    for method in ("pre_batch_forward", "batch_forward", "post_batch_forward", "batch_loss"):
        wrong = type("Forgetful", (Sums,), {method: lambda *_: None})
        message = rf"Forgetful.{method}: returned None: a `return` is missing\n.*\n  .*return "
        with pytest.raises(TaskError, match=message):
            fit(make_run(wrong(), for_="1ep"))


def test_a_loss_without_a_count_is_said_once_to_have_the_batch_size(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Bare(Sums):
        def batch_loss(self, out: Any, batch: Any) -> Any:
            return super().batch_loss(out, batch)["loss"][0]

    class Model(nn.Linear):
        def forward(self, features: Tensor, target: Tensor) -> dict[str, Tensor]:
            return {"loss": (super().forward(features) - target).square().mean()}

    task = ModuleTask()
    task.train_loader = Sums().train_loader
    for run, owner in (
        (make_run(Bare(), for_="2ep", eval_loss=True), "Bare.batch_loss"),
        (make_run(task, Model(3, 1), for_="2ep"), "Model"),
    ):
        caplog.clear()
        with caplog.at_level("INFO"):
            fit(run)
        said = [one.getMessage() for one in caplog.records if "count" in one.getMessage()]
        assert said == [
            f"{owner}: 'loss' has no count, so the batch size, now 4, is its weight in averages; "
            "return {'loss': (value, count)} for another one"
        ]


def test_the_sum_of_several_losses_is_not_named_as_a_loss_without_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Bare(Sums):
        def batch_loss(self, out: Any, batch: Any) -> Any:
            loss = super().batch_loss(out, batch)["loss"][0]
            return {"first": loss, "second": loss}

    model = nn.Linear(3, 1)
    members = [
        Member("a", torch.optim.SGD([model.weight], lr=0.1), MemberOptions(loss="first")),
        Member("b", torch.optim.SGD([model.bias], lr=0.1), MemberOptions(loss="second")),
    ]
    with caplog.at_level("INFO"):
        fit(make_run(Bare(), model, parts={"optimizer": Optimizers(members)}, for_="1ep"))
    said = [one.getMessage() for one in caplog.records if "count" in one.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("Bare.batch_loss: 'first' has no count")


def test_metrics_of_a_whole_pass_must_be_numbers() -> None:
    for value in (None, "high", torch.ones(2)):
        task = Sums()
        task.epoch_metric = lambda run, value=value: {"auc": value}
        with pytest.raises(TaskError, match=r"Sums.epoch_metric: 'auc' is .*, not a number"):
            execute(make_run(task), Test(), raise_errors=True)
    task = Sums()
    task.post_metric_to_err = lambda result: None
    with pytest.raises(TaskError, match=r"Sums.post_metric_to_err: 'err' is .*, not a number"):
        execute(make_run(task), Test(), raise_errors=True)


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_training_and_evaluation_compute_in_the_precision_of_the_run(precision: str) -> None:
    class Noting(Sums):
        def __init__(self) -> None:
            super().__init__()
            self.dtypes: set[torch.dtype] = set()

        def batch_forward(self, model: nn.Module, batch: Any) -> Any:
            out = super().batch_forward(model, batch)
            self.dtypes.add(out["sum"].dtype)
            return out

        def batch_loss(self, out: Any, batch: Any) -> Any:
            self.dtypes.add((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
            return super().batch_loss(out, batch)

        def batch_metric(self, out: Any, batch: Any) -> Any:
            self.dtypes.add((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
            return super().batch_metric(out, batch)

    expected = torch.bfloat16 if precision == "bf16" else torch.float32
    run = make_run(Noting(), engine={"precision": precision})
    batch = next(iter(run.task.train_loader))
    run.train_batch(batch)
    outcome = run.part(TaskCalls).forward(batch)
    run.part(TaskCalls).add_metrics(outcome)
    run.part(TaskCalls).add_loss(outcome)
    assert run.task.dtypes == {expected}


def test_an_error_of_a_call_says_how_to_write_the_method() -> None:
    class Forward(Sums):
        def batch_forward(self, batch: Any) -> Any: ...

    class Loss(Sums):
        def batch_loss(self, model: Any, out: Any, batch: Any, epoch: int) -> Any: ...

    class Metric(Sums):
        def batch_metric(self, out: Any) -> Any: ...

    class Inside(Sums):
        def batch_metric(self, out: Any, batch: Any) -> Any:
            return self.batch_forward(batch)

    for task, note in (
        (Forward(), "write def batch_forward(self, model, batch)"),
        (Loss(), "write def batch_loss(self, out, batch)"),
        (Metric(), "write def batch_metric(self, out, batch)"),
        (Inside(), None),
    ):
        with pytest.raises(TypeError) as caught:
            fit(make_run(task))
        notes = getattr(caught.value, "__notes__", [])
        assert [one for one in notes if one.startswith("write")] == ([note] if note else []), note
