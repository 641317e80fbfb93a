"""Tests of steps in which several optimizers minimize their own losses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader

from engine.parts import Points, Witness, fit, make_run, weights
from engine.recorded_graph import RecordedGraph, record_graphs
from engine.staged import stages
from epochal.components.average import Ema
from epochal.components.schedules import Linear
from epochal.engine import Task
from epochal.engine.interfaces.schedule import OptimizerSchedules, TorchSchedule
from epochal.engine.optim.multi_optimizer import Member, MemberOptions, Optimizers
from epochal.engine.step.updater import MultiOptimizerUpdater, Updater
from epochal.errors import ConfigError, TaskError

STEPS = 12


class Gan(nn.Module):
    """A generator of points and a critic of them."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
        self.critic = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))


def losses(model: Gan, real: Tensor) -> tuple[Tensor, Tensor]:
    """What the generator descends, and what the critic does; noise is made of the batch."""
    fake = model.generator(real.flip(0).cos())
    generator = functional.softplus(-model.critic(fake)).mean()
    fooled = functional.softplus(model.critic(fake.detach())).mean()
    return generator, fooled + functional.softplus(-model.critic(real)).mean()


def batches(count: int = STEPS * 4, size: int = 4) -> DataLoader[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return DataLoader(torch.randn(count, 2, generator=generator), batch_size=size)  # type: ignore[arg-type]  # a tensor is read like a dataset


class Faking(Task):
    def __init__(self, loader: DataLoader[Tensor] | None = None) -> None:
        self.train_loader = loader or batches()

    def batch_forward(self, model: Gan, batch: Tensor) -> tuple[Tensor, Tensor]:
        return losses(model, batch)

    def batch_loss(self, out: tuple[Tensor, Tensor], batch: Tensor) -> dict[str, Any]:
        return {"g_loss": (out[0], len(batch)), "d_loss": (out[1], len(batch))}


def adam(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(net.parameters(), lr=0.01)


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def joined(model: Gan, make: Any = adam, **options: dict[str, Any]) -> Optimizers:
    own = {"generator": {"loss": "g_loss"}, "critic": {"loss": "d_loss"}}
    return Optimizers(
        [
            Member(name, make(net), MemberOptions(**{**own[name], **options.get(name, {})}))
            for name, net in model.named_children()
        ]
    )


def trained(task: Any = None, *, make: Any = adam, sections: Any = None, **options: Any) -> Gan:
    model = Gan()
    optimizer = joined(model, make, **options)
    given = {"parts": {"optimizer": optimizer}, "for_": "1ep", **(sections or {})}
    fit(make_run(task or Faking(), model, **given))
    return model


def by_hand(
    make: Any = adam, *, generator_every: int = 1, finish: Any = None, rate: Any = None
) -> Gan:
    model = Gan()
    generator, critic = make(model.generator), make(model.critic)
    for step, real in enumerate(batches()):
        if rate is not None:
            generator.param_groups[0]["lr"] = rate(step)
        generator_loss, critic_loss = losses(model, real)
        critic.zero_grad()
        critic_loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        generator.zero_grad()
        generator_loss.backward(inputs=list(model.generator.parameters()))  # type: ignore[no-untyped-call]
        if finish is not None:
            finish(model)
        if (step + 1) % generator_every == 0:
            generator.step()
        critic.step()
    return model


def same(one: nn.Module, other: nn.Module) -> bool:
    return torch.equal(weights(one), weights(other))


def test_two_models_train_bitwise_like_a_hand_written_loop() -> None:
    assert same(trained(), by_hand())
    assert not same(trained(), Gan())


def test_an_optimizer_may_step_less_often() -> None:
    ours = trained(generator={"every": 5})
    assert same(ours, by_hand(generator_every=5))
    assert not same(ours, by_hand())


def test_each_clips_the_gradients_of_its_own_parameters() -> None:
    def clip(model: Gan) -> None:
        clip_grad_norm_(model.generator.parameters(), 0.05)
        clip_grad_value_(model.critic.parameters(), 0.01)

    ours = trained(make=sgd, generator={"clip": 0.05}, critic={"clip": {"value": 0.01}})
    assert same(ours, by_hand(sgd, finish=clip))
    assert not same(ours, by_hand(sgd))


def test_each_may_have_its_own_schedule() -> None:
    model = Gan()
    optimizer = joined(model, sgd)
    schedules = OptimizerSchedules(
        {
            "generator": (optimizer["generator"], Linear()),
            "critic": (optimizer["critic"], None),
        }
    )
    points = Points()
    run = make_run(
        Faking(),
        model,
        parts={"optimizer": optimizer, "schedule": schedules},
        setting={"writer": points},
        for_="1ep",
    )
    rates = []
    run.on("step_end", lambda run: rates.append(dict(run.learning_rates)))
    fit(run)
    assert same(model, by_hand(sgd, rate=lambda step: 0.1 * (1 - step / STEPS)))
    assert rates[2] == {"lr/generator": pytest.approx(0.1 * (1 - 3 / STEPS)), "lr/critic": 0.1}


def test_gradients_of_microbatches_are_those_of_the_whole_batch() -> None:
    whole = trained(make=sgd)
    parts = trained(Faking(batches(size=2)), make=sgd, sections={"optim": {"accumulate": 2}})
    torch.testing.assert_close(weights(parts), weights(whole), rtol=1e-4, atol=1e-5)


def test_losses_count_by_their_own_items() -> None:
    class Counted(Faking):
        def batch_loss(self, out: Any, batch: Tensor) -> dict[str, Any]:
            count = torch.tensor(float(len(batch)))
            return {"g_loss": (out[0], count), "d_loss": (out[1], count), "loss": (out[1], 1)}

    plain = trained(Faking(batches(size=2)), make=sgd, sections={"optim": {"accumulate": 2}})
    counted = trained(Counted(batches(size=2)), make=sgd, sections={"optim": {"accumulate": 2}})
    torch.testing.assert_close(weights(counted), weights(plain))


@pytest.mark.parametrize("section", [{}, {"optim": {"noise": 0.01}}])
def test_two_optimizers_of_one_loss_equal_one_with_two_groups(section: dict[str, Any]) -> None:
    class Summed(Faking):
        def batch_loss(self, out: Any, batch: Tensor) -> dict[str, Any]:
            return {"loss": (out[0] + out[1], len(batch))}

    same_loss = {"generator": {"loss": "loss"}, "critic": {"loss": "loss"}}
    ours = trained(Summed(), sections=section, **same_loss)
    model = Gan()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    fit(make_run(Summed(), model, parts={"optimizer": optimizer}, for_="1ep", **section))
    assert same(ours, model)


def test_losses_are_reported_by_name_and_as_a_sum() -> None:
    model = Gan()
    run = make_run(Faking(), model, parts={"optimizer": joined(model)}, for_="1ep")
    metrics = fit(run).metrics
    total = metrics["train/epoch/g_loss"] + metrics["train/epoch/d_loss"]
    assert metrics["train/epoch/loss"] == pytest.approx(total, rel=1e-6)


def test_average_and_gradient_norm_cover_all_parameters() -> None:
    model, average = Gan(), Ema(decay=0.5)
    parts = {"optimizer": joined(model), "average": average}
    run = make_run(Faking(), model, parts=parts, log={"grad_norm": True}, for_="1ep")
    assert isinstance(run.part(Updater), MultiOptimizerUpdater)
    kept: dict[str, Tensor] = {}
    norms = []
    run.on("run_end", lambda run: kept.update(average.state_tensors()))
    run.on("epoch_end", lambda run, metrics: norms.append(metrics["train/grad_norm"]))
    fit(run)
    assert norms[0] > 0
    assert {name.split(".")[0] for name in kept} == {"generator", "critic"}


def fused(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True)


@pytest.mark.parametrize(("make", "costs"), [(sgd, True), (fused, False)])
def test_a_nonfinite_gradient_skips_all_optimizers(make: Any, costs: bool) -> None:
    class Bursting(Faking):
        def batch_loss(self, out: Any, batch: Tensor) -> dict[str, Any]:
            bad = torch.where(batch.sum() > 0, torch.inf, 1.0)
            return {"g_loss": (out[0] * bad, 4), "d_loss": (out[1], 4)}

    model = Gan()
    run = make_run(
        Bursting(),
        model,
        parts={"optimizer": joined(model, make)},
        engine={"on_nonfinite": "skip"},
        for_="1ep",
    )
    notes: list[str] = []
    run.on("run_start", lambda run: notes.append(run.part(Updater).cost_note(run)))
    fit(run)
    assert bool(notes[0]) is costs  # a fused optimizer skips on the device
    assert weights(model).isfinite().all()
    assert not same(model, Gan())


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (
            lambda out: {"loss": (out[0], 1), "d_loss": (out[1], 1)},
            "returned no 'g_loss', the loss of",
        ),
        (
            lambda out: {"g_loss": (out[0].detach(), 1), "d_loss": (out[1], 1)},
            "'g_loss' does not depend on any trained parameter",
        ),
    ],
)
def test_an_unusable_loss_is_refused(given: Any, what: str) -> None:
    class Wrong(Faking):
        def batch_loss(self, out: Any, batch: Tensor) -> Any:
            return given(out)

    with pytest.raises(TaskError, match=what):
        trained(Wrong())


def test_a_torch_scheduler_may_step_before_its_optimizer() -> None:
    model = Gan()
    optimizer = joined(model, sgd, generator={"every": 3})
    scheduler = TorchSchedule(ExponentialLR(optimizer["generator"], 0.5))
    members: dict[str, Any] = {
        "generator": (optimizer["generator"], scheduler),
        "critic": (optimizer["critic"], None),
    }
    parts = {"optimizer": optimizer, "schedule": OptimizerSchedules(members)}
    run = make_run(Faking(), model, parts=parts, for_="2st")
    rates: dict[str, float] = {}
    run.on("run_end", lambda run: rates.update(run.learning_rates))
    fit(run)
    assert rates == {"lr/generator": 0.025, "lr/critic": 0.1}


@pytest.mark.parametrize("every", [1, 2])
def test_captured_steps_of_each_kind_train_the_same(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_graphs(monkeypatch)
    witness, model = Witness(), Gan()
    run = make_run(
        Faking(batches(160)),
        model,
        hooks=(witness,),
        parts={"optimizer": joined(model, sgd, generator={"every": every, "clip": 0.1})},
        engine={"step": "graph"},
        for_="1ep",
    )
    fit(run)
    assert witness.choices["step"] == "graph", witness.choices
    assert RecordedGraph.captures == every
    eager = trained(Faking(batches(160)), make=sgd, generator={"every": every, "clip": 0.1})
    assert same(model, eager)


def fused(net: nn.Module) -> torch.optim.Optimizer:
    rate = torch.tensor(0.05)
    return torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9, fused=True)


@pytest.mark.parametrize(
    "options",
    [
        {"engine": {"microbatch": 3}},
        {"engine": {"microbatch": "auto"}, "optim": {"accumulate": 2}},
        {"engine": {"on_nonfinite": "skip"}},
        {"parts": {"stages": stages(("12st", {"freeze": ("generator",)}), ("12st", {}))}},
        {"parts": {"stages": stages(("12st", {}), ("12st", {"batch_size": 4}))}},
    ],
)
def test_captured_steps_train_the_same_with(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_graphs(monkeypatch)
    models = [Gan(), Gan()]
    for model, step in zip(models, ("eager", "graph"), strict=True):
        optimizer = joined(model, fused, generator={"every": 2, "clip": 0.1})
        given = {"for_": "1ep", **options, "engine": {"step": step, **options.get("engine", {})}}
        given["parts"] = {"optimizer": optimizer, **options.get("parts", {})}
        fit(make_run(Faking(batches(320)), model, **given))
    assert RecordedGraph.replays > 10
    assert same(*models)


def changed(at: int, make: Any = adam, **change: Any) -> Gan:
    model = Gan()
    run = make_run(Faking(), model, parts={"optimizer": joined(model, make)}, for_="1ep")
    run.on("step_end", lambda run: run.change_optim(**change) if run.step == at else None)
    fit(run)
    return model


def test_the_options_of_one_optimizer_may_change() -> None:
    ours = changed(4, generator={"lr": 0.05})
    assert same(ours, by_hand(rate=lambda step: 0.01 if step < 4 else 0.05))
    assert not same(ours, by_hand())


def test_the_state_of_one_optimizer_may_be_reset() -> None:
    model = Gan()
    optimizer = joined(model, sgd)
    run = make_run(Faking(), model, parts={"optimizer": optimizer}, for_="1ep")
    kept = []

    def change(run: Any) -> None:
        if run.step == 4:
            run.change_optim(generator={"state": "reset"})
            kept.extend(optimizer.state)

    run.on("step_end", change)
    fit(run)
    assert {id(one) for one in kept} == {id(one) for one in model.critic.parameters()}


def test_a_change_of_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(ConfigError, match="no optimizer 'generato'\n  did you mean 'generator'"):
        changed(4, generato={"lr": 1})


def test_changes_of_one_optimizer_are_captured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    record_graphs(monkeypatch)
    models = [Gan(), Gan()]
    for model, step in zip(models, ("eager", "graph"), strict=True):
        run = make_run(
            Faking(batches(320)),
            model,
            parts={"optimizer": joined(model, sgd)},
            engine={"step": step},
            for_="1ep",
        )
        run.on(
            "step_end",
            lambda run: run.change_optim(critic={"lr": 0.01}) if run.step == 20 else None,
        )
        fit(run)
        assert run.choices["step"] == step
    assert RecordedGraph.captures == 2
    assert same(*models)
