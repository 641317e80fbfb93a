"""Tests of the way from microbatches to one update."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from engine.parts import Points, Sums, adder, fit, make_run, numbers, weights
from epochal.components.average import Ema
from epochal.engine import Run, Task, TorchSchedule, Train, Updater
from epochal.engine.execute import execute
from epochal.engine.step.updater import GradientNoise
from epochal.errors import ConfigError


class Ordered(Sums):
    """Batches in a fixed order, so that runs with other batch sizes see the same data."""

    def __init__(self, count: int, batch_size: int) -> None:
        super().__init__(count, batch_size=batch_size, shuffle=False, val=0)


def trained(task: Task, **options: Any) -> Tensor:
    model = adder()
    fit(make_run(task, model, **{"for_": "2ep", **options}))
    return weights(model)


def test_one_batch_of_32_equals_four_of_8() -> None:
    whole = trained(Ordered(64, 32))
    parts = trained(Ordered(64, 8), optim={"accumulate": 4})
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)


class Tokens(Task):
    """Sequences with padding: the loss is a mean over tokens."""

    def __init__(self, batch_size: int, rows: slice = slice(None), count: int = 38) -> None:
        generator = torch.Generator().manual_seed(0)
        features = torch.randn(count, 5, 3, generator=generator)
        mask = torch.rand(count, 5, generator=generator) < 0.6
        dataset = TensorDataset(features[rows], mask[rows])
        self.train_loader = DataLoader(dataset, batch_size=batch_size)

    def batch_forward(self, model: nn.Module, batch: Any) -> Any:
        return {"sum": model(batch[0]).squeeze(-1)}

    def batch_loss(self, out: Any, batch: Any) -> Any:
        features, mask = batch
        loss = (out["sum"] - features.sum(-1)).square()[mask]
        return {"loss": (loss.mean(), mask.sum())}


def gradient_and_count(task: Task, **options: Any) -> tuple[Tensor, float]:
    """The gradient of the first step, and how many items it is a mean of."""
    found: list[Tensor] = []
    counts: list[float] = []
    run = make_run(task, for_="1st", **options)
    run.on("batch_end", lambda run, batch: counts.append(float(_count(task, batch))))
    run.on("step_end", lambda run: found.append(_gradient(run.model)))
    fit(run)
    return found[0], sum(counts)


def _count(task: Task, batch: Any) -> Any:
    return batch[1].sum() if isinstance(task, Tokens) else len(batch[1])


@pytest.mark.parametrize("kind", [Ordered, Tokens])
@pytest.mark.parametrize("count", [32, 29])
def test_one_batch_four_parts_and_two_ranks_give_equal_gradients(kind: Any, count: int) -> None:
    def task(size: int, rows: slice = slice(None)) -> Task:
        built: Any = Ordered(count, size) if kind is Ordered else Tokens(size, count=count)
        if rows != slice(None):
            tensors = [one[rows] for one in built.train_loader.dataset.tensors]
            built.train_loader = DataLoader(TensorDataset(*tensors), batch_size=size)
        return built

    whole, items = gradient_and_count(task(32))
    parts, same = gradient_and_count(task(8), optim={"accumulate": 4})
    assert items == same
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)
    # Two ranks with 16 samples each: what each has, weighted by its items.
    ranks = [gradient_and_count(task(16, rows)) for rows in (slice(16), slice(16, None))]
    assert sum(share for _, share in ranks) == items
    joined = sum(gradient * share for gradient, share in ranks) / items
    torch.testing.assert_close(joined, whole, rtol=1e-5, atol=1e-6)


def test_the_remainder_of_an_epoch_is_weighted_by_its_tokens_defect_15() -> None:
    whole = trained(Tokens(32))  # steps of 32 and of 6
    parts = trained(Tokens(8), optim={"accumulate": 4})  # the last one has 6 alone
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)


def test_batches_of_unequal_size_are_weighted_by_their_counts_defect_15() -> None:
    whole = trained(Ordered(30, 30))
    parts = trained(Ordered(30, 8), optim={"accumulate": 4})  # 8, 8, 8 and 6
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)


def test_the_remainder_of_an_epoch_is_flushed_as_a_step_defect_15() -> None:
    whole = trained(Ordered(38, 32))  # one step of 32, one of 6
    parts = trained(Ordered(38, 8), optim={"accumulate": 4})  # 8, 8, 8, 8, then 6
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)
    assert fit(make_run(Ordered(38, 8), optim={"accumulate": 4}, for_="3ep")).steps == 6


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.LBFGS])
def test_a_step_without_items_does_not_change_the_weights(kind: Any) -> None:
    class Empty(Ordered):
        def batch_loss(self, out: Any, batch: Any) -> Any:
            return {"loss": (out["sum"].sum() * 0, torch.tensor(0))}

    model = adder()
    before = weights(model)
    parts = {"optimizer": kind(model.parameters(), lr=0.1)}
    fit(make_run(Empty(8, 4), model, parts=parts, for_="2st", optim={"accumulate": 2}))
    assert torch.equal(weights(model), before)


def test_no_graph_is_kept_between_microbatches_defect_15() -> None:
    alive: list[int] = []
    outputs: list[weakref.ref[Tensor]] = []

    class Watching(Ordered):
        def batch_forward(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
            alive.append(sum(output() is not None for output in outputs))
            out = super().batch_forward(model, batch)
            outputs.append(weakref.ref(out["sum"]))
            return out

    trained(Watching(32, 4), optim={"accumulate": 4})
    assert max(alive) <= 1


def test_one_microbatch_is_a_plain_step() -> None:
    model, raw = adder(), adder()
    fit(make_run(Ordered(12, 4), model, for_="2ep"))
    optimizer = torch.optim.SGD(raw.parameters(), lr=0.1)
    for _ in range(2):
        for features, sums in DataLoader(numbers(12), batch_size=4):
            optimizer.zero_grad()
            nn.functional.mse_loss(raw(features), sums).backward()
            optimizer.step()
    assert torch.equal(weights(model), weights(raw))


def test_clipping_limits_the_norm_of_all_parameters() -> None:
    norms: list[float] = []

    def note(run: Run) -> None:
        grads = [parameter.grad for parameter in run.model.parameters()]
        norms.append(float(torch.cat([grad.flatten() for grad in grads]).norm()))

    run = make_run(for_="1ep", optim={"clip": 0.01})
    run.on("step_end", note)
    fit(run)
    assert norms == pytest.approx([0.01] * 5, rel=1e-3)


def gradients_of(**options: Any) -> list[Tensor]:
    found: list[Tensor] = []
    run = make_run(for_="1ep", **options)
    run.on("step_end", lambda run: found.append(_gradient(run.model)))
    fit(run)
    return found


def _gradient(model: nn.Module) -> Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def test_clipping_joins_all_groups_of_the_optimizer() -> None:
    model = adder()
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[3].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.2)
    norms: list[float] = []
    run = make_run(Sums(), model, parts={"optimizer": optimizer}, for_="1ep", optim={"clip": 0.01})
    run.on("step_end", lambda run: norms.append(float(_gradient(run.model).norm())))
    fit(run)
    assert norms == pytest.approx([0.01] * 5, rel=1e-3)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.2]


def test_the_rate_is_updated_once_per_accumulated_step_defect_13() -> None:
    rates: list[float] = []
    model = adder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = TorchSchedule(torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5))
    parts = {"optimizer": optimizer, "schedule": schedule}
    run = make_run(Ordered(30, 4), model, parts=parts, for_="1ep", optim={"accumulate": 4})
    run.on("batch_end", lambda run, split: rates.append(run.learning_rates["lr"]))
    fit(run)
    assert rates == [1.0] * 4 + [0.5] * 4  # the second step takes the remainder


def test_clipping_by_value_limits_every_element_of_the_gradient() -> None:
    plain, clipped = gradients_of()[0], gradients_of(optim={"clip": {"value": 0.05}})
    assert float(plain.abs().max()) > 0.05
    assert torch.equal(clipped[0], plain.clamp(-0.05, 0.05))
    assert all(float(gradient.abs().max()) <= 0.05 + 1e-6 for gradient in clipped)


def test_an_invalid_clip_limit_is_refused() -> None:
    for clip in ({"value": -1.0}, {"norn": 1.0}, {}, {"norm": 1.0, "value": 1.0}):
        with pytest.raises(ConfigError, match=r"optim\.clip: cannot clip by(.|\n)*\{norm: 1\.0\}"):
            make_run(optim={"clip": clip})


def test_an_infinite_gradient_is_skipped_although_its_value_is_clipped() -> None:
    class Exploding(Ordered):
        def batch_loss(self, out: Any, batch: Any) -> Any:
            return {"loss": (out["sum"].sum() * torch.inf, len(batch[1]))}

    model = adder()
    before = weights(model)
    optim, engine = {"clip": {"value": 0.1}}, {"on_nonfinite": "skip"}
    fit(make_run(Exploding(8, 4), model, for_="2st", optim=optim, engine=engine))
    assert torch.equal(weights(model), before)


def test_logging_the_gradient_norm_does_not_change_training() -> None:
    plain = trained(Sums())
    model = adder()
    run = make_run(Sums(), model, for_="2ep", log={"grad_norm": True})
    result = fit(run)
    assert result.metrics["train/epoch/grad_norm"] > 0
    assert torch.equal(weights(model), plain)
    assert "train/grad_norm" not in fit(make_run(for_="1ep", optim={"clip": 1.0})).metrics


def test_frozen_and_unused_parameters_do_not_change() -> None:
    model = adder()
    model.unused = nn.Linear(1, 1)
    model[0].weight.requires_grad_(False)
    frozen = model[0].weight.clone()
    model.forward = lambda features: nn.Sequential(*list(model)[:4])(features)
    fit(make_run(Sums(), model, for_="1ep", optim={"accumulate": 2, "clip": 1.0}))
    assert torch.equal(model[0].weight, frozen)


def grown(task: Sums, **options: Any) -> Tensor:
    """The weights of a model whose last layer joins the optimizer after the first step."""
    model = adder()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    run = make_run(task, model, parts={"optimizer": optimizer}, for_="3st", **options)

    def add(run: Run) -> None:
        if run.step == 1:
            optimizer.add_param_group({"params": model[3].parameters()})

    run.on("step_end", add)
    fit(run)
    return weights(model)


def test_parameters_added_during_the_run_are_divided_and_clipped() -> None:
    whole = grown(Ordered(96, 32), optim={"clip": 0.5})
    parts = grown(Ordered(96, 8), optim={"accumulate": 4, "clip": 0.5})
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)
    assert not torch.equal(grown(Ordered(96, 32)), whole)


def test_a_user_may_replace_the_update() -> None:
    class Twice(Updater):
        def update(self, run: Run, microbatches: tuple[Any, ...]) -> None:
            super().update(run, microbatches)
            super().update(run, microbatches)

    class Counted(torch.optim.SGD):
        steps = 0

        def step(self, closure: Any = None) -> None:
            self.steps += 1
            super().step()

    model = adder()
    optimizer = Counted(model.parameters(), lr=0.1)
    parts = {"updater": Twice(), "optimizer": optimizer}
    result = fit(make_run(Sums(), model, parts=parts, for_="1ep"))
    assert (result.steps, optimizer.steps) == (5, 10)


def test_means_of_training_are_weighted_by_counts() -> None:
    points = Points()
    model = adder()
    run = make_run(Ordered(10, 4), model, lr=0.0, for_="1ep", setting={"writer": points})
    fit(run)
    features, sums = numbers(10).tensors
    expected = nn.functional.mse_loss(model(features), sums).item()
    assert points.points[-1][1]["train/epoch/loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("size", [10, 16])
def test_lbfgs_equals_a_hand_written_loop(size: int) -> None:
    task, model, by_hand = Ordered(size, size), adder(), adder()
    options = {"lr": 0.5, "max_iter": 4, "line_search_fn": "strong_wolfe"}
    optimizer = torch.optim.LBFGS(model.parameters(), **options)
    result = fit(make_run(task, model, parts={"optimizer": optimizer}, for_="3ep"))
    other = torch.optim.LBFGS(by_hand.parameters(), **options)
    (batch,) = task.train_loader

    def evaluate() -> Tensor:
        other.zero_grad()
        loss, _ = task.batch_loss(task.batch_forward(by_hand, batch), batch)["loss"]
        loss.backward()
        return loss

    for _ in range(3):
        other.step(evaluate)
    assert result.steps == 3
    assert torch.equal(weights(model), weights(by_hand))


def test_lbfgs_minimizes_the_mean_over_all_microbatches() -> None:
    def by_lbfgs(task: Task, **options: Any) -> Tensor:
        model = adder()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
        fit(make_run(task, model, parts={"optimizer": optimizer}, for_="2ep", **options))
        return weights(model)

    parts = by_lbfgs(Ordered(30, 8), optim={"accumulate": 4})
    torch.testing.assert_close(parts, by_lbfgs(Ordered(30, 30)), rtol=1e-4, atol=1e-4)


def test_a_closure_optimizer_counts_each_batch_once() -> None:
    model, seen = adder(), []
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
    parts = {"optimizer": optimizer}
    run = make_run(Ordered(30, 8), model, parts=parts, optim={"accumulate": 2}, for_="1ep")
    run.on("batch_end", lambda index: seen.append(index))
    fit(run)
    assert seen == [0, 1, 2, 3]


def test_an_overridden_zero_grad_is_called() -> None:
    class Own(torch.optim.SGD):
        zeroed = 0

        def zero_grad(self, set_to_none: bool = True) -> None:
            self.zeroed += 1
            super().zero_grad(set_to_none)

    model = adder()
    optimizer = Own(model.parameters(), lr=0.1)
    result = fit(make_run(Ordered(12, 4), model, parts={"optimizer": optimizer}, for_="2ep"))
    assert optimizer.zeroed == result.steps
    assert torch.equal(weights(model), trained(Ordered(12, 4)))


def test_a_custom_updater_can_use_the_methods_of_the_usual_one() -> None:
    class Twice(Updater):
        """Takes the gradient of the loss and of its square."""

        def update(self, run: Run, microbatches: tuple[Any, ...]) -> None:
            (batch,) = microbatches
            outcome = run.train_batch(batch)
            self.zero_grad()
            self.backward(outcome.loss + outcome.loss**2)
            self.apply(run)
            run.finish_batch(outcome)

    model = adder()
    parts = {"updater": Twice(), "average": Ema(decay=0.5)}
    engine = {"on_nonfinite": "skip"}
    result = fit(make_run(Sums(), model, parts=parts, engine=engine, lr=1e-3, for_="2ep"))
    assert result.metrics["train/epoch/skipped"] == 0
    assert result.metrics["val/mae"] != result.metrics["val_ema/mae"]


def test_a_plain_step_computes_no_norm() -> None:
    run = make_run(for_="1ep")
    run.on("step_end", lambda run: None)
    updater = run.part(Updater)
    fit(run)
    assert updater.grad_norm is None
    assert updater.state_tensors() == {}


def test_options_that_a_custom_train_step_may_miss_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Own(Train):
        def train_step(self, run: Run, microbatches: tuple[Any, ...]) -> None:
            run.part(Updater).update(run, microbatches)

    through_updater = (
        "Own overrides train_step, where it works only through run.part(Updater).update"
    )
    table: list[tuple[dict[str, Any], str]] = [
        ({"parts": {"average": Ema()}}, f"average: {through_updater}"),
        ({"engine": {"on_nonfinite": "skip"}}, f"engine.on_nonfinite=skip: {through_updater}"),
        (
            {"engine": {"precision": "fp16"}},
            f"the scaled loss of engine.precision=fp16: {through_updater}",
        ),
        ({"optim": {"clip": 1.0}}, f"optim.clip: {through_updater}"),
        (
            {"engine": {"step": "compile"}},
            "engine.step=compile: has no effect, because Own overrides train_step",
        ),
    ]
    for options, text in table:
        execute(make_run(for_="1st", **options), Own(), raise_errors=True)
        assert text in caplog.messages
    caplog.clear()
    fit(make_run(for_="1st", optim={"clip": 1.0}, engine={"on_nonfinite": "skip"}))
    assert "train_step" not in caplog.text


def test_the_variance_of_gradient_noise_follows_its_formula() -> None:
    torch.manual_seed(0)
    noise = GradientNoise(eta=0.5, decay=0.55, count=torch.zeros(()))
    for count in range(5):
        gradient = torch.full((20_000,), 3.0)
        noise.add_to([gradient])
        assert gradient.mean().item() == pytest.approx(3, abs=0.03)
        assert gradient.var().item() == pytest.approx(0.5 / (1 + count) ** 0.55, rel=0.05)
    assert noise.count == 5


def test_training_with_gradient_noise_equals_a_hand_written_loop() -> None:
    batches: list[Any] = []

    class Noting(Sums):
        def pre_batch_forward(self, batch: Any) -> Any:
            batches.append(batch)
            return batch

    model, other = adder(), adder()
    options = {"optim": {"noise": 0.1, "clip": 0.5}, "for_": "6st", "sanity_batches": 0}
    run = make_run(Noting(40), model, eval_every=0, **options)
    states: list[torch.Tensor] = []
    run.on("run_start", lambda run: states.append(torch.get_rng_state()))
    fit(run)
    torch.set_rng_state(states[0])
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for count, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(other(x), y).backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), 0.5)
        sigma = 0.1**0.5 * (1 + torch.tensor(float(count))) ** (-0.55 / 2)
        noise = [torch.randn_like(one) for one in other.parameters()]
        for parameter, one in zip(other.parameters(), noise, strict=True):
            assert parameter.grad is not None
            parameter.grad += one * sigma
        optimizer.step()
    assert torch.equal(weights(model), weights(other))


def test_gradient_noise_is_refused_with_lbfgs() -> None:
    model = adder()
    optimizer = torch.optim.LBFGS(model.parameters())
    run = make_run(model=model, parts={"optimizer": optimizer}, optim={"noise": 0.1})
    with pytest.raises(ConfigError, match=r"optim.noise: LBFGS needs exact gradients"):
        fit(run)
