"""Tests of stages as a config describes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import epochal as ep
from epochal.checkpoint import read_checkpoint
from epochal.errors import ConfigError
from epochal.records import read_run
from epochal.records.folder.checkpoint_manifests import find_checkpoints
from epochal.testing import TinyModel
from small_project import write

if TYPE_CHECKING:
    from small_project import Command

CONFIG = """
task: {type: shop.parts.Points}
model: {type: shop.parts.Net, dropout: 0}
optim: {type: AdamW, lr: 0.05, clip: 1.0, freeze: ["linear.bias"]}
monitor: +val/acc
log: {console_every: 0, record_every: 1st}
checkpoint: {every: 1st, keep_last: null}
stages:
  - {name: warm, for: 4st}
  - {for: 1ep, optim: {lr: 0.01, accumulate: 2}, unfreeze: [linear], schedule: linear}
  - {name: late, for: 3st, optim: {type: SGD, lr: 0.5, momentum: 0.9}, batch_size: 8}
"""


class Probe(ep.Hook):
    """Notes what a function returns after each step."""

    priority = 900

    def __init__(self, read: Any) -> None:
        self.found: list[Any] = []
        self._read = read

    def step_end(self, run: ep.Run) -> None:
        self.found.append(self._read(run))


def probe(read: Any, *overrides: str, **sections: Any) -> list[Any]:
    hook = Probe(read)
    choices = {"no_file": True, "device": "cpu"}
    experiment = ep.Experiment(
        "config.yaml", overrides=overrides, choices=choices, hooks=[hook], **sections
    )
    result = experiment.fit()
    assert result.ok, result.traceback
    return hook.found


@pytest.fixture
def staged(shop: Path) -> Path:
    write(shop / "config.yaml", CONFIG)
    return shop


@pytest.mark.parametrize("unfreeze", [[], ["linear.bias"]])
def test_a_rule_that_only_freezes_allows_later_changes(staged: Path, unfreeze: list[str]) -> None:
    rules = [{"match": "linear.bias", "freeze": True}]
    stages = [{"for": "2st"}, {"for": "2st", "optim": {"lr": 0.01}, "unfreeze": unfreeze}]
    found = probe(
        lambda run: [len(group["params"]) for group in run.optimizer.param_groups],
        optim={"type": "AdamW", "lr": 0.05, "groups": rules},
        stages=stages,
    )
    held = found[0][0]
    assert found == [[held]] * 2 + [[held + len(unfreeze)]] * 2


def test_each_stage_has_its_own_optimizer_and_keeps_the_keys_of_the_section(staged: Path) -> None:
    found = probe(
        lambda run: (type(run.optimizer).__name__, run.options.optim.accumulate, run.samples)
    )
    options = probe(lambda run: (run.options.optim.clip, run.optimizer.param_groups[0]["lr"]))
    assert {clip for clip, _ in options} == {1.0}
    assert options[-1] == (1.0, 0.5)
    assert found == [
        *[("AdamW", 1, 4), ("AdamW", 1, 8), ("AdamW", 1, 12), ("AdamW", 1, 16)],
        ("AdamW", 2, 24),
        *[("SGD", 2, 40), ("SGD", 2, 48), ("SGD", 2, 64)],
    ]


def test_parameters_that_the_config_froze_can_be_trained_later(staged: Path) -> None:
    found = probe(lambda run: run.model.linear.bias.detach().clone())
    assert torch.equal(found[0], found[3])
    assert not torch.equal(found[3], found[4])


def test_a_run_resumes_from_every_checkpoint_of_every_stage(staged: Path) -> None:
    check_resumes(8)


def check_resumes(count: int) -> None:
    """Stop a run after each of its steps, and resume it."""
    whole = ep.run("config.yaml", raise_errors=True)
    assert whole.dir is not None
    assert whole.steps == count
    for step in range(1, count):
        stop = Probe(lambda run, step=step: interrupt(run) if run.step == step else None)
        half = ep.Experiment("config.yaml", hooks=[stop]).fit(raise_errors=False)
        assert half.dir is not None
        assert half.steps == step
        choices = {"resume": str(half.dir), "allow_changed": True, "raise_errors": True}
        again = ep.Experiment("config.yaml", choices=choices).fit()
        assert again.steps == count
        assert torch.equal(final_weights(half.dir), final_weights(whole.dir)), step


def interrupt(run: ep.Run) -> None:
    run.stop("user_interrupt", status="interrupted")


def final_weights(folder: Path) -> torch.Tensor:
    state, _ = read_checkpoint(folder / "checkpoints" / "last")
    weights = state["model"]["weights"]
    return torch.cat([weights[name].flatten() for name in sorted(weights)])


def test_record_and_checkpoints_have_the_stages(staged: Path, epochal: Command) -> None:
    result = ep.run("config.yaml", raise_errors=True)
    assert result.dir is not None
    events = [
        (one["kind"], one["name"], one["step"])
        for one in read_run(result.dir).events
        if one["kind"].startswith("stage")
    ]
    assert events == [
        *[("stage_start", "warm", 0), ("stage_end", "warm", 4), ("stage_start", "stage2", 4)],
        *[("stage_end", "stage2", 5), ("stage_start", "late", 5), ("stage_end", "late", 8)],
    ]
    stages = {
        one.step: read_checkpoint(one.path)[0]["stage"]["name"]
        for one in find_checkpoints(result.dir / "checkpoints")
    }
    assert (stages[2], stages[5], stages[7]) == ("warm", "stage2", "late")
    shown = epochal("show", str(result.dir)).out
    assert "stages   warm from step 0, stage2 from step 4, late from step 5" in shown


def test_the_plan_shows_stages_with_their_first_steps(staged: Path, epochal: Command) -> None:
    shown = " ".join(epochal("plan", "config.yaml", "--device", "cpu").out.split())
    assert "warm 0 4st" in shown
    assert "stage2 4 1ep optim.lr=0.01, optim.accumulate=2, schedule, unfreeze linear" in shown
    assert "late 5 3st optim.type=SGD, optim.lr=0.5, optim.momentum=0.9, batch_size=8" in shown
    assert "3 epochs, 8 steps" in shown


def test_python_changes_the_optimizer_by_name_or_class(staged: Path) -> None:
    class Change(ep.Hook):
        def step_end(self, run: ep.Run) -> None:
            if run.step == 2:
                run.change_optim(lr=0.3)
            if run.step == 3:
                run.change_optim(type=torch.optim.RMSprop, lr=0.2, groups=GROUPS)

    found: list[Any] = []

    class Note(ep.Hook):
        priority = 900

        def step_end(self, run: ep.Run) -> None:
            groups = run.optimizer.param_groups  # type: ignore[union-attr]
            found.append((type(run.optimizer).__name__, [float(one["lr"]) for one in groups]))

    choices = {"no_file": True, "device": "cpu", "raise_errors": True}
    ep.Experiment(
        "config.yaml", overrides=["stages=$delete"], choices=choices, hooks=[Change(), Note()]
    ).fit(epochs=1)
    assert found[0] == ("AdamW", [0.05])
    assert found[1] == ("AdamW", [0.3])
    assert found[2:] == [("RMSprop", [2.0])] * 4


GROUPS = [{"match": "*.weight", "lr_mult": 10}]


def test_a_wrong_change_from_python_is_reported_like_a_wrong_config(staged: Path) -> None:
    class Change(ep.Hook):
        def step_end(self, run: ep.Run) -> None:
            run.change_optim(lrr=0.3)

    choices = {"no_file": True, "device": "cpu", "raise_errors": True}
    with pytest.raises(ConfigError, match=r"(?s)unknown argument 'lrr'.*did you mean 'lr'"):
        ep.Experiment("config.yaml", choices=choices, hooks=[Change()]).fit()


def test_options_of_a_given_optimizer_are_changed_in_place(staged: Path) -> None:
    model = TinyModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stages = [{"for": "2st"}, {"for": "2st", "optim": {"lr": 0.01, "momentum": 0.5, "clip": 3.0}}]
    found = probe(
        lambda run: (
            run.optimizer is optimizer,
            run.learning_rates["lr"],
            run.optimizer.param_groups[0]["momentum"],
            run.options.optim.clip,
        ),
        "model=$delete",
        "optim=$delete",
        model=model,
        optim=optimizer,
        stages=stages,
    )
    assert found == [(True, 0.1, 0, None)] * 2 + [(True, 0.01, 0.5, 3.0)] * 2


def test_another_type_than_that_of_a_given_optimizer_is_refused(
    staged: Path,
) -> None:
    model = TinyModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    experiment = ep.Experiment(
        "config.yaml",
        overrides=["model=$delete", "optim=$delete"],
        choices={"no_file": True, "device": "cpu", "raise_errors": True},
        model=model,
        optim=optimizer,
        stages=[{"for": "2st", "optim": {"type": "AdamW"}}],
    )
    with pytest.raises(ConfigError, match="was given as an object and has no 'type' to change"):
        experiment.fit()


DATA = """
task: {type: shop.parts.Fed}
model: {type: shop.parts.Net, dropout: 0}
optim: {type: SGD, lr: 0.1}
data: {train: {type: shop.parts.Rows, batch_size: 4}}
log: {console_every: 0}
checkpoint: {every: 1st, keep_last: null}
stages:
  - {for: 1ep}
  - {for: 1ep, data: {train: {type: shop.parts.Rows, size: 30, batch_size: 10}}}
  - {for: 2st, batch_size: 15}
"""


def test_stages_can_read_other_data(shop: Path) -> None:
    write(shop / "config.yaml", DATA)
    assert probe(lambda run: run.samples) == [4, 8, 18, 28, 38, 53, 68]


def test_a_run_resumes_within_the_data_of_its_stage(shop: Path) -> None:
    write(shop / "config.yaml", DATA)
    check_resumes(7)


def test_a_finished_run_resumes_with_another_stage(staged: Path) -> None:
    whole = ep.run("config.yaml", raise_errors=True)
    assert whole.dir is not None
    with pytest.raises(ConfigError, match=r"(?s)already finished.*longer with stages.2.for=..."):
        ep.resume(whole.dir, raise_errors=True)
    more = CONFIG.rstrip() + "\n  - {name: last, for: 2st, optim: {lr: 0.1}}\n"
    write(staged / "config.yaml", more)
    fresh = ep.run("config.yaml", raise_errors=True)
    again = ep.run("config.yaml", resume=str(whole.dir), allow_changed=True, raise_errors=True)
    assert again.steps == fresh.steps == 10
    assert again.dir is not None
    assert fresh.dir is not None
    assert torch.equal(final_weights(again.dir), final_weights(fresh.dir))


def test_fast_goes_through_all_stages(staged: Path) -> None:
    choices = {"no_file": True, "fast": True, "device": "cpu"}
    result = ep.Experiment("config.yaml", choices=choices).fit()
    assert result.ok, result.message
    assert (result.steps, result.epochs) == (3 + 2 + 2, 3)  # accumulated from the second on


def test_an_override_changes_a_stage(staged: Path, epochal: Command) -> None:
    done = epochal("check", "config.yaml", "stages.1.optim.lr=0.2")
    assert done.code == 0, done
    done = epochal("check", "config.yaml", "stages.1.optim.lrr=0.2")
    assert "stages.1.optim.lrr" in done.out + done.err
    assert Path("config.yaml").exists()
