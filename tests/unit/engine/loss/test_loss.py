from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.parts import Sums, adder, fit, make_run, weights
from epochal.engine.loss.loss import Loss, LossTerm
from epochal.errors import ConfigError, Place, TaskError

OUT = {"logits": torch.tensor([[2.0, 0.0], [0.5, 1.5]]), "size": torch.tensor([1.0, 2.0])}
BATCH = {"image": torch.zeros(2, 3), "label": torch.tensor([0, 0]), "size": torch.zeros(2)}
CE = {"input": "out.logits", "target": "batch.label"}
L1 = {"input": "out.size", "target": "batch.size"}


class Bare(Sums):
    batch_loss = None  # type: ignore[assignment]


def two(aux: float = 0.5) -> Loss:
    return Loss(
        [
            LossTerm(nn.CrossEntropyLoss(), name="ce", inputs=CE),
            LossTerm(nn.L1Loss(), name="aux", weight=aux, inputs=L1),
        ]
    )


def test_a_single_term_without_a_name_is_the_loss() -> None:
    losses = Loss([LossTerm(nn.CrossEntropyLoss(), inputs=CE)])(OUT, BATCH)
    assert losses.keys() == {"loss"}
    value, count = losses["loss"]
    assert torch.equal(value, functional.cross_entropy(OUT["logits"], BATCH["label"]))
    assert count == 2


def test_terms_are_returned_unweighted_and_summed_weighted() -> None:
    losses = two()(OUT, BATCH)
    assert list(losses) == ["loss", "ce", "aux"]
    ce = functional.cross_entropy(OUT["logits"], BATCH["label"])
    assert torch.equal(losses["ce"][0], ce)
    assert losses["aux"][0].item() == 1.5
    assert torch.equal(losses["loss"][0], ce + torch.tensor(1.5) * 0.5)


def test_a_term_without_a_count_is_said_once_to_have_the_batch_size(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def counted(input: Tensor, target: Tensor) -> tuple[Tensor, int]:
        return functional.cross_entropy(input, target), 7

    loss = Loss(
        [
            LossTerm(nn.CrossEntropyLoss(), name="ce", inputs=CE, key="loss.ce"),
            LossTerm(counted, name="own", inputs=CE, key="loss.own"),
        ]
    )
    with caplog.at_level("INFO"):
        for _ in range(2):
            assert loss(OUT, BATCH)["own"][1] == 7
    assert [one.getMessage() for one in caplog.records] == [
        "loss.ce: CrossEntropyLoss returns no count, so the batch size, now 2, is its weight in "
        "averages; a loss that returns (value, count) sets another one"
    ]


def test_a_term_with_weight_0_is_not_computed() -> None:
    def refuse(**_: Any) -> Tensor:
        raise AssertionError

    loss = Loss(
        [LossTerm(nn.L1Loss(), name="l1", inputs=L1), LossTerm(refuse, name="no", weight=0)]
    )
    assert list(loss(OUT, BATCH)) == ["loss", "l1"]
    loss.set_weights({"l1": 0})
    with pytest.raises(TaskError, match="every term has the weight 0"):
        loss(OUT, BATCH)


def test_weights_can_be_changed_by_name() -> None:
    loss = two()
    loss.set_weights({"aux": 2.0})
    total, ce, aux = (one.item() for one, _ in loss(OUT, BATCH).values())
    assert total == pytest.approx(ce + 2 * aux)
    with pytest.raises(ConfigError, match=r"loss.axu: the loss has no term 'axu'\n.*'aux'"):
        loss.set_weights({"axu": 1.0})


def test_a_function_may_ask_for_all_of_output_and_batch() -> None:
    def own(out: Any, batch: Any, *, scale: float = 2.0) -> Tensor:
        return (out["size"] - batch["size"]).mean() * scale

    (value, count) = Loss([LossTerm(own)])(OUT, BATCH)["loss"]
    assert (value.item(), count) == (3.0, 2)


def test_the_first_terms_items_count_for_the_sum() -> None:
    def tokens(out: Any) -> tuple[Tensor, int]:
        return out["size"].mean(), 100

    loss = Loss([LossTerm(tokens, name="a"), LossTerm(nn.L1Loss(), name="b", inputs=L1)])
    losses = loss(OUT, BATCH)
    assert (losses["loss"][1], losses["a"][1], losses["b"][1]) == (100, 100, 2)


def test_ambiguous_inputs_are_an_error_with_the_available_names() -> None:
    term = LossTerm(nn.CrossEntropyLoss(), key="loss.0", place=Place("a.yaml", 3, 5))
    message = re.escape(
        "loss.0.inputs: cannot tell which part is 'input' of CrossEntropyLoss: out has logits, "
        "size; batch has image, label, size\n  set in a.yaml:3:5\n  write for example inputs: "
        "{input: out.logits, target: batch.size}"
    )
    with pytest.raises(ConfigError, match=message):
        Loss([term])(OUT, BATCH)


def test_a_missing_path_is_an_error_with_the_nearest_name() -> None:
    term = LossTerm(nn.CrossEntropyLoss(), inputs={"input": "out.logit", "target": "batch.label"})
    with pytest.raises(
        ConfigError, match=r"loss.inputs.input: there is no 'out.logit'.*\n.*'logits'"
    ):
        Loss([term])(OUT, BATCH)


def test_invalid_inputs_are_refused_before_the_run() -> None:
    for path in ("logits", "outs.logits", "out..a", "out."):
        with pytest.raises(ConfigError, match="must be out, batch, or a path into one of them"):
            LossTerm(nn.L1Loss(), inputs={"input": path})
    with pytest.raises(ConfigError, match=r"L1Loss has no argument 'inputt'\n.*'input'"):
        LossTerm(nn.L1Loss(), inputs={"inputt": "out.a"})


def test_a_term_that_returns_no_number_is_named() -> None:
    table = [
        (1.0, "returned 1.0, not a tensor"),
        (torch.zeros(3), r"returned a tensor of shape \(3,\), not one number"),
        ({"a": 1}, "returned {'a': 1}, not a tensor"),
    ]
    for result, message in table:

        def own(out: Any, result: Any = result) -> Any:
            return result

        with pytest.raises(TaskError, match=rf"loss.0: .*own {message}"):
            Loss([LossTerm(own, key="loss.0")])(OUT, BATCH)


def test_a_batch_without_size_needs_a_count() -> None:
    def own(out: Any) -> Tensor:
        return out.mean()

    with pytest.raises(TaskError, match=r"the batch has no known size\n  return \(value, count\)"):
        Loss([LossTerm(own)])(torch.ones(2), "text")


def test_a_configured_loss_trains_bitwise_like_batch_loss() -> None:
    one, other = adder(), adder()
    first = fit(make_run(Sums(), one))
    second = fit(make_run(Bare(), other, parts={"loss": Loss([LossTerm(nn.MSELoss())])}))
    assert torch.equal(weights(one), weights(other))
    assert first.metrics == second.metrics


def test_each_term_is_logged_by_its_name() -> None:
    loss = Loss([LossTerm(nn.MSELoss(), name="mse"), LossTerm(nn.L1Loss(), name="l1", weight=0.5)])
    metrics = fit(make_run(Bare(), parts={"loss": loss}, eval_loss=True)).metrics
    for split in ("train/epoch", "val"):
        total = metrics[f"{split}/mse"] + 0.5 * metrics[f"{split}/l1"]
        assert metrics[f"{split}/loss"] == pytest.approx(total, rel=1e-6)


def test_a_batch_loss_that_takes_loss_fn_receives_the_loss_of_the_config() -> None:
    class Scaled(Sums):
        def batch_loss(self, out: Any, batch: Any, loss_fn: Any) -> dict[str, Any]:
            value, count = loss_fn(out, batch)["loss"]
            return {"loss": (value * 2, count), "plain": (value, count)}

    metrics = fit(make_run(Scaled(), parts={"loss": Loss([LossTerm(nn.MSELoss())])})).metrics
    assert metrics["train/epoch/loss"] == pytest.approx(2 * metrics["train/epoch/plain"])


def test_a_loss_beside_batch_loss_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"loss: Sums.batch_loss already computes the loss\n.*loss_fn"
    ):
        make_run(Sums(), parts={"loss": Loss([LossTerm(nn.MSELoss())])})


def test_a_loss_without_gradient_names_the_section() -> None:
    def own(batch: Any) -> Tensor:
        return batch[1].mean()

    with pytest.raises(
        TaskError, match=r"^loss: the loss does not depend on any trained parameter"
    ):
        fit(make_run(Bare(), parts={"loss": Loss([LossTerm(own)])}))


def test_a_loss_describes_itself() -> None:
    assert two(0.25).describe() == "ce + 0.25 aux"
    assert two(0).describe() == "ce"
    assert Loss([LossTerm(nn.CrossEntropyLoss(), weight=2)]).describe() == "2 CrossEntropyLoss"


def test_evaluation_sets_the_loss_to_eval_mode() -> None:
    class Moody(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.moods: set[tuple[bool, bool]] = set()

        def forward(self, out: Any) -> Tensor:
            self.moods.add((self.training, out["sum"].requires_grad))
            return out["sum"].mean()

    moody = Moody()
    fit(make_run(Bare(), parts={"loss": Loss([LossTerm(moody)])}, eval_loss=True))
    assert moody.moods == {(True, True), (False, False)}


@pytest.mark.parametrize(
    ("names", "message"),
    [(["a", "a"], "two terms are called 'a'"), (["a", "loss"], "'loss' is the name of the sum")],
)
def test_names_that_clash_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Loss([LossTerm(nn.L1Loss(), name=name) for name in names])
