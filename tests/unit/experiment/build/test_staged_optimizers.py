"""Tests of stages that change some of several optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

import epochal as ep
from epochal.checkpoint import read_checkpoint
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 12
OPTIM = {
    "generator": {"type": "SGD", "lr": 0.1, "momentum": 0.9, "match": "generator", "loss": "g"},
    "critic": {"type": "AdamW", "lr": 0.01, "loss": "d", "fused": False, "foreach": False},
}
STAGES: list[dict[str, Any]] = [
    {"for": "4st"},
    {"for": "4st", "optim": {"generator": {"lr": 0.02, "weight_decay": 0.1}}},
    {
        "for": "4st",
        "optim": {
            "critic": {"type": "SGD", "lr": 0.5, "clip": 0.1},
            "generator": {"every": 2},
        },
    },
]


class Gan(nn.Module):
    def __init__(self) -> None:
        torch.manual_seed(1)
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
        self.critic = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))


def losses(model: Gan, real: Tensor) -> tuple[Tensor, Tensor]:
    fake = model.generator(real.flip(0).cos())
    generator = functional.softplus(-model.critic(fake)).mean()
    critic = functional.softplus(model.critic(fake.detach())).mean()
    return generator, critic + functional.softplus(-model.critic(real)).mean()


def batches() -> DataLoader[Tensor]:
    points = torch.randn(STEPS * 4, 2, generator=torch.Generator().manual_seed(5))
    return DataLoader(points, batch_size=4)  # type: ignore[arg-type]  # read like a dataset


class Faking(ep.Task):
    def __init__(self) -> None:
        self.train_loader = batches()

    def batch_forward(self, model: Gan, batch: Tensor) -> tuple[Tensor, Tensor]:
        return losses(model, batch)

    def batch_loss(self, out: tuple[Tensor, Tensor], batch: Tensor) -> dict[str, Any]:
        return {"g": (out[0], len(batch)), "d": (out[1], len(batch))}


def trained(*hooks: Any, **sections: Any) -> Gan:
    model = Gan()
    given = {"optim": OPTIM, "stages": STAGES, "log": {"console_every": 0}, **sections}
    choices = {"no_file": True, "device": "cpu", "raise_errors": True}
    ep.Experiment(task=Faking(), model=model, hooks=hooks, choices=choices, **given).fit()
    return model


def by_hand() -> Gan:
    model = Gan()
    generator: Any = torch.optim.SGD(model.generator.parameters(), lr=0.1, momentum=0.9)
    critic: Any = torch.optim.AdamW(model.critic.parameters(), lr=0.01)
    for step, real in enumerate(batches()):
        if step == 4:
            generator.param_groups[0].update(lr=0.02, weight_decay=0.1)
        if step == 8:
            critic = torch.optim.SGD(model.critic.parameters(), lr=0.5)
        of_generator, of_critic = losses(model, real)
        model.zero_grad()
        of_critic.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        model.generator.zero_grad()
        of_generator.backward(inputs=list(model.generator.parameters()))  # type: ignore[no-untyped-call]
        if step >= 8:
            nn.utils.clip_grad_norm_(model.critic.parameters(), 0.1)
        if step < 8 or (step + 1) % 2 == 0:
            generator.step()
        critic.step()
    return model


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def test_stages_change_each_of_several_optimizers_like_a_hand_written_loop() -> None:
    assert torch.equal(weights(trained()), weights(by_hand()))


def test_schedules_of_several_optimizers_continue_through_changes() -> None:
    rates: list[dict[str, float]] = []
    own = {**OPTIM, "generator": {**OPTIM["generator"], "schedule": {"type": "linear"}}}
    trained(lambda run: run.on("step_end", lambda run: note(rates, run)), optim=own)
    assert rates[2]["lr/generator"] == pytest.approx(0.1 * (1 - 3 / STEPS))
    assert rates[6]["lr/generator"] == pytest.approx(0.02 * (1 - 7 / STEPS))
    assert rates[10] == {"lr/generator": pytest.approx(0.02 * (1 - 11 / STEPS)), "lr/critic": 0.5}


def note(rates: list[dict[str, float]], run: ep.Run) -> None:
    rates.append({name: float(value) for name, value in run.learning_rates.items()})


def run_in_parts(folder: Path, *stops: int) -> Tensor:
    """The final weights of a run that was interrupted after some steps and resumed."""
    sections = {"optim": OPTIM, "stages": STAGES, "record": {"log_dir": str(folder)}}
    choices: dict[str, Any] = {"device": "cpu", "raise_errors": False}
    result = None
    for stop in (*stops, STEPS):

        def interrupt(run: ep.Run, stop: int = stop) -> None:
            if run.step == stop < STEPS:
                run.stop("user_interrupt", status="interrupted")

        if result is not None:
            choices = {**choices, "resume": str(result.dir), "allow_changed": True}
        result = ep.Experiment(
            task=Faking(),
            model=Gan(),
            hooks=[lambda run, end=interrupt: run.on("step_end", end)],
            choices=choices,
            **sections,
        ).fit()
        assert result.steps == stop
    assert result is not None
    assert result.dir is not None
    state, _ = read_checkpoint(result.dir / "checkpoints" / "last")
    return torch.cat([one.flatten() for one in state["model"]["weights"].values()])


def test_a_run_with_several_optimizers_resumes_in_any_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # each run copies the code of the current folder
    whole = run_in_parts(tmp_path / "whole")
    for stops in ((3, 5, 6, 11), (4, 8)):  # inside stages, and between them
        assert torch.equal(run_in_parts(tmp_path / str(stops), *stops), whole), stops


def test_change_optim_changes_several_optimizers_like_a_stage() -> None:
    def attend(run: ep.Run) -> None:
        run.on("step_end", change)

    def change(run: ep.Run) -> None:
        if run.step in (4, 8):
            run.change_optim(**STAGES[run.step // 4]["optim"])

    ours = trained(attend, stages=[{"for": "12st"}])
    assert torch.equal(weights(ours), weights(by_hand()))


def test_impossible_changes_from_python_are_refused() -> None:
    table: list[tuple[Any, str]] = [
        ({"critics": {"lr": 1}}, "there is no optimizer 'critics'"),
        ({"critic": {"match": "generator"}}, "'match' of one of several optimizers cannot change"),
        ({"critic": {"state": "kept"}}, "optim.critic.state: unknown state 'kept'"),
        ({"critic": {"type": "SGD", "state": "keep"}}, "cannot be kept from AdamW to SGD"),
        ({"critic": {"beta": 1}}, "optim.critic.beta: unknown argument 'beta'"),
    ]
    for change, message in table:

        def attend(run: ep.Run, change: Any = change) -> None:
            run.on("step_end", lambda run: run.change_optim(**change))

        with pytest.raises(ConfigError, match=message):
            trained(attend, stages=[{"for": "4st"}])
