"""Tests of building optimizers and schedules, through the runs that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

import epochal as ep
from epochal.engine import Member, MemberOptions, Optimizers
from epochal.errors import ConfigError
from epochal.experiment.tools.plan_run import plan_file
from epochal.records import read_run
from epochal.testing import TinyModel, TinyTask
from looking import Look, look
from small_project import write


def test_frozen_parameters_are_not_given_to_the_optimizer(shop: Path) -> None:
    model = TinyModel()
    model.linear.bias.requires_grad_(requires_grad=False)
    found = look(
        lambda run: [p.shape for p in run.optimizer.param_groups[0]["params"]],
        "model=$delete",
        model=model,
    )
    assert found == [torch.Size([3, 4])]


def test_schedules_of_ours_and_of_torch_can_be_named(shop: Path) -> None:
    for schedule in ("{type: cosine, warmup: 2st}", "{type: StepLR, step_size: 1, unit: epoch}"):
        assert look(lambda run: run.schedule is not None, f"schedule={schedule}"), schedule
    assert look(lambda run: run.schedule) is None


class Net(nn.Module):
    """Two blocks between a stem and a head; one matrix of each block is declared free of decay."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4)) for _ in range(2)]
        )
        self.head = nn.Linear(4, 3)

    @override
    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        scores: Tensor = self.head(x)
        return scores


class InOrder(TinyTask):
    """Reads its data in the same order in each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.train_loader = self.val_loader


def made(net: type[nn.Module] = Net) -> nn.Module:
    torch.manual_seed(3)
    return net()


def trained(optim: dict[str, Any], model: nn.Module, task: Any = None, **sections: Any) -> Look:
    """Trains a model for two epochs; gives what hooks saw of the groups."""
    hook = Look(lambda run: [dict(group) for group in run.optimizer.param_groups])
    experiment = ep.Experiment(
        task=task or InOrder(),
        model=model,
        optim=optim,
        hooks=[hook],
        choices={"no_file": True, "device": "cpu", "raise_errors": True},
        **{"train": {"for": "2ep"}, **sections},
    )
    assert experiment.fit().ok
    return hook


def train_by_hand(model: nn.Module, optimizer: torch.optim.Optimizer, factor: Any = None) -> None:
    task = InOrder()
    rates = [group["lr"] for group in optimizer.param_groups]
    model.train()
    for step, batch in enumerate([*task.train_loader, *task.train_loader]):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * (1 if factor is None else factor(step))
        optimizer.zero_grad()
        functional.cross_entropy(model(batch["x"]), batch["label"]).backward()
        optimizer.step()


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


RULES = [
    {"match": "*.bias", "weight_decay": 0},
    {"module": "LayerNorm", "weight_decay": 0, "betas": [0.8, 0.9]},
    {"match": "head.*", "lr_mult": 10},
]


def groups_by_hand(model: Any) -> list[dict[str, Any]]:
    norms = {"weight_decay": 0.0, "betas": (0.8, 0.9)}
    return [
        {"params": [model.stem.weight]},
        {"params": [model.stem.bias], "weight_decay": 0.0},
        {"params": [block[0].weight for block in model.blocks], **norms},
        {"params": [block[0].bias for block in model.blocks], **norms},
        {"params": [block[1].weight for block in model.blocks]},
        {"params": [block[1].bias for block in model.blocks], "weight_decay": 0.0},
        {"params": [model.head.weight], "lr": 10 * 0.01},
        {"params": [model.head.bias], "lr": 10 * 0.01, "weight_decay": 0.0},
    ]


@pytest.mark.parametrize("form", ["fused", "foreach", None])
def test_groups_train_like_those_of_a_hand_written_loop_bit_for_bit(form: str | None) -> None:
    ours, theirs = made(), made()
    chosen = {} if form == "fused" else {"fused": False, "foreach": form == "foreach"}
    optim = {"type": "AdamW", "lr": 0.01, "weight_decay": 0.3, "groups": RULES, **chosen}
    found = trained(optim, ours).found
    assert [group["name"] for group in found] == [
        "rest",
        "bias",
        "LayerNorm",
        "bias+LayerNorm",
        "head",
        "bias+head",
    ]
    options: dict[str, Any] = {"fused": True} if form == "fused" else chosen
    by_hand = torch.optim.AdamW(groups_by_hand(theirs), lr=0.01, weight_decay=0.3, **options)
    train_by_hand(theirs, by_hand)
    assert same(ours, theirs)


def test_ratios_of_the_rates_are_kept_under_a_schedule() -> None:
    ours, theirs = made(), made()
    optim = {"type": "SGD", "lr": 0.1, "groups": [{"match": "head", "lr_mult": 0.5}]}
    trained(optim, ours, schedule={"type": "linear"})
    rest = [one for name, one in theirs.named_parameters() if not name.startswith("head")]
    groups = [{"params": rest}, {"params": list(theirs.head.parameters()), "lr": 0.05}]  # type: ignore[union-attr]  # a module
    by_hand = torch.optim.SGD(groups, lr=0.1, fused=True)
    train_by_hand(theirs, by_hand, lambda step: 1 - step / 12)
    assert same(ours, theirs)


def test_ratios_of_the_rates_are_kept_under_any_schedule() -> None:
    for schedule in (
        {"type": "OneCycleLR", "max_lr": 0.1, "total_steps": 13},
        {"type": "CyclicLR", "base_lr": 0.01, "max_lr": 0.1, "step_size_up": 4},
        {"type": "ExponentialLR", "gamma": 0.9},
        {"type": "CosineAnnealingLR", "T_max": 12},
        {"type": "one_cycle"},
        {"type": "cosine", "warmup": 3},
    ):
        rates = rates_by_step(
            optim={"type": "SGD", "lr": 0.01, "groups": [{"match": "head", "lr_mult": 10}]},
            schedule=schedule,
            train={"for": "11st"},
        )
        usual, high = zip(*(one.values() for one in rates), strict=True)
        assert len({round(one, 12) for one in usual}) > 4, schedule
        assert high == pytest.approx([10 * one for one in usual]), schedule


def rates_by_step(**sections: Any) -> list[dict[str, float]]:
    """The learning rates after each step of a training."""
    rates: list[dict[str, float]] = []
    hook = Look(lambda run: run.on("step_end", lambda run: rates.append(run.learning_rates)))
    choices = {"no_file": True, "device": "cpu", "raise_errors": True}
    sections = {"model": made(), **sections}
    assert ep.Experiment(task=InOrder(), hooks=[hook], choices=choices, **sections).fit().ok
    return rates


def test_layer_decay_is_that_of_a_hand_written_loop() -> None:
    ours, theirs = made(), made()
    found = trained({"type": "SGD", "lr": 0.1, "layer_decay": 0.5}, ours).found
    assert [group["name"] for group in found] == ["layer0", "layer1", "layer2", "layer3"]
    parts: Any = theirs
    groups = [
        {"params": list(part.parameters()), "lr": 0.1 * 0.5 ** (3 - layer)}
        for layer, part in enumerate([parts.stem, *parts.blocks, parts.head])
    ]
    train_by_hand(theirs, torch.optim.SGD(groups, lr=0.1, fused=True))
    assert same(ours, theirs)


def test_frozen_parameters_stay_as_they_were() -> None:
    ours, before = made(), made()
    trained({"type": "SGD", "lr": 0.1, "freeze": ["stem", "blocks.0"]}, ours)
    moved = [
        name
        for (name, one), other in zip(ours.named_parameters(), before.parameters(), strict=True)
        if not torch.equal(one, other)
    ]
    assert {name.split(".")[0] for name in moved} == {"blocks", "head"}
    assert not any(name.startswith("blocks.0") for name in moved)
    assert not any(one.requires_grad for one in ours.stem.parameters())  # type: ignore[union-attr]  # a module


def test_no_decay_spares_biases_and_norms() -> None:
    found = trained({"type": "AdamW", "weight_decay": 0.1, "no_decay": "auto"}, made()).found
    assert {group["name"]: group["weight_decay"] for group in found} == {
        "rest": 0.1,
        "no_decay": 0.0,
    }
    assert [len(group["params"]) for group in found] == [4, 8]


def test_a_model_may_choose_groups_and_rules_refine_them() -> None:
    class Choosing(Net):
        def optim_groups(self, optim: dict[str, Any]) -> list[dict[str, Any]]:
            return [
                {"params": "head", "lr": optim["lr"] * 2, "name": "top"},
                {"params": ["stem", "blocks"], "name": "body"},
            ]

    rules = [{"match": "head.bias", "weight_decay": 0}]
    optim = {"type": "AdamW", "lr": 0.1, "weight_decay": 0.5, "groups": rules}
    found = trained(optim, made(Choosing)).found
    assert [(group["name"], group["lr"], group["weight_decay"]) for group in found] == [
        ("body", 0.1, 0.5),
        ("top", 0.2, 0.5),
        ("top+head.bias", 0.2, 0.0),
    ]


def test_a_task_may_train_its_own_parameters() -> None:
    class Weighing(InOrder):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Linear(1, 1, bias=False)

        @override
        def batch_loss(self, out: Any, batch: Any) -> Any:
            loss, count = super().batch_loss(out, batch)["loss"]
            return {"loss": (loss + self.scale.weight.square().sum(), count)}

        def optim_groups(self, model: nn.Module, optim: dict[str, Any]) -> list[dict[str, Any]]:
            return [
                {"params": model.parameters(), "name": "model"},
                {"params": self.scale.parameters(), "lr_mult": 0.1, "name": "scale"},
            ]

    task = Weighing()
    before = task.scale.weight.item()
    found = trained({"type": "SGD", "lr": 0.1}, made(), task).found
    assert [group["name"] for group in found] == ["model", "scale"]
    assert abs(task.scale.weight.item()) < abs(before)


def test_rules_that_match_nothing_or_freeze_everything_are_refused() -> None:
    table: dict[str, dict[str, Any]] = {
        r"optim\.groups\.0: 'haed' matches no parameter": {"groups": [{"match": "haed", "lr": 1}]},
        r"optim\.freeze: 'x\.\*' matches no parameter": {"freeze": ["stem", "x.*"]},
        "optim: every parameter is frozen": {"freeze": ["*"]},
    }
    for what, optim in table.items():
        with pytest.raises(ep.ConfigError, match=what):
            trained({"type": "SGD", "lr": 0.1, **optim}, made())


RULED = """
$BASE: config.yaml
optim:
  groups:
    - {match: "*.bias", weight_decay: 0}
    - {match: linaer, lr: 1}
"""


def test_the_line_of_a_rule_that_matches_nothing_is_shown(shop: Path) -> None:
    write(shop / "ruled.yaml", RULED)
    result = ep.run("ruled.yaml", no_file=True, device="cpu", raise_errors=False)
    assert "set in ruled.yaml:5:15" in result.message
    assert "near it: linear" in result.message


def test_a_pattern_of_the_command_line_that_matches_nothing_is_shown_there(shop: Path) -> None:
    write(shop / "ruled.yaml", RULED)
    for key, value in (("match", "haed"), ("module", "Linaer")):
        changes = ["optim.groups.1.match=$delete", f"optim.groups.1.{key}={value}"]
        result = ep.run(
            "ruled.yaml", overrides=changes, no_file=True, device="cpu", raise_errors=False
        )
        assert f"set on the command line\n    optim.groups.1.{key}={value}\n" in result.message


def test_mistakes_that_only_the_model_shows_are_reported_with_their_line(shop: Path) -> None:
    text = (shop / "config.yaml").read_text()
    rest = [line for line in text.splitlines() if not line.startswith("train:")]
    for first in ("engine: {recompute: [gone]}", "stages: [{for: 1ep, freeze: [gone]}]"):
        write(shop / "gone.yaml", "\n".join([first, *rest]))
        result = ep.run("gone.yaml", no_file=True, device="cpu", raise_errors=False)
        assert "'gone'" in result.message
        assert "set in gone.yaml:1:" in result.message
        with pytest.raises(ConfigError, match=r"set in gone\.yaml:1:"):
            [*plan_file(Path("gone.yaml"), device="cpu")]


def test_the_rates_of_groups_are_recorded_by_name(shop: Path) -> None:
    changes = ["optim.groups=[{match: '*.bias', lr_mult: 2}]", "log.record_every=1st"]
    result = ep.run("config.yaml", overrides=changes, device="cpu")
    assert result.ok, result.message
    assert result.dir is not None
    record = read_run(result.dir)
    assert record.last("lr/rest").value == 0.05
    assert record.last("lr/bias").value == 0.1


TWO: dict[str, Any] = {
    "body": {"type": "SGD", "lr": 0.1, "match": ["stem", "blocks"]},
    "head": {"type": "AdamW", "lr": 0.01, "every": 2},
}


def test_several_optimizers_train_like_in_a_hand_written_loop_bit_for_bit() -> None:
    ours, theirs = made(), made()
    found = trained({**TWO, "accumulate": 1}, ours).found
    assert [group["name"] for group in found] == ["body", "head"]
    parts: Any = theirs
    body = torch.optim.SGD([*parts.stem.parameters(), *parts.blocks.parameters()], 0.1, fused=True)
    head = torch.optim.AdamW(parts.head.parameters(), 0.01, fused=True)
    task = InOrder()
    for step, batch in enumerate([*task.train_loader, *task.train_loader]):
        theirs.zero_grad()
        functional.cross_entropy(theirs(batch["x"]), batch["label"]).backward()
        body.step()
        if step % 2:
            head.step()
    assert same(ours, theirs)


def test_each_of_several_optimizers_has_its_own_groups_and_schedule() -> None:
    optim = {
        "body": {
            **TWO["body"],
            "groups": [{"match": "stem", "lr_mult": 0.5}],
            "freeze": ["blocks.0"],
        },
        "head": {**TWO["head"], "schedule": {"type": "linear"}},
    }
    model = made()
    schedule = {"type": "constant"}
    rates = rates_by_step(model=model, optim=optim, schedule=schedule, train={"for": "12st"})
    assert list(rates[0]) == ["lr/body/stem", "lr/body/rest", "lr/head"]
    assert list(rates[5].values()) == pytest.approx([0.05, 0.1, 0.005])
    assert not any(one.requires_grad for one in model.blocks[0].parameters())  # type: ignore[index]  # a list


def test_one_schedule_holds_for_all_of_several_optimizers() -> None:
    hook = trained(TWO, made(), schedule={"type": "linear"})
    assert [group["initial_lr"] for group in hook.found] == [0.1, 0.01]


@pytest.mark.parametrize(
    ("optim", "what"),
    [
        (
            {**TWO, "head": {**TWO["head"], "match": "stem.bias"}},
            r"optim\.head\.match: 'stem\.bias' is trained by 'body' already",
        ),
        (
            {**TWO, "head": {**TWO["head"], "match": "head.weight"}},
            "none of the optimizers trains 1 parameters, such as 'head.bias'",
        ),
        ({**TWO, "head": {**TWO["head"], "match": "haed"}}, r"optim\.head\.match: 'haed' matches"),
        (
            {**TWO, "body": {**TWO["body"], "match": "*"}},
            r"optim\.head: trains nothing, since no parameter is left",
        ),
        (
            {**TWO, "head": {**TWO["head"], "groups": [{"match": "stem", "lr": 1}]}},
            r"optim\.head\.groups\.0: 'stem' matches no parameter",
        ),
        ({**TWO, "head": {"type": "LBFGS"}}, r"optim\.head\.type: LBFGS evaluates the loss itself"),
    ],
)
def test_optimizers_that_cannot_share_a_model_are_refused(optim: Any, what: str) -> None:
    with pytest.raises(ep.ConfigError, match=what):
        trained(optim, made())


def test_several_optimizers_may_come_as_objects() -> None:
    ours, theirs = made(), made()
    trained(TWO, ours)
    parts: Any = theirs
    body = [*parts.stem.parameters(), *parts.blocks.parameters()]
    members = [
        Member("body", torch.optim.SGD(body, 0.1, fused=True)),
        Member(
            "head",
            torch.optim.AdamW(parts.head.parameters(), 0.01, fused=True),
            MemberOptions(every=2),
        ),
    ]
    trained(Optimizers(members), theirs)  # type: ignore[arg-type]  # or a mapping
    assert same(ours, theirs)


def test_optim_groups_of_the_model_is_not_called_for_several_optimizers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Choosing(Net):
        def optim_groups(self) -> list[dict[str, Any]]:
            raise AssertionError("must not be called")

    trained(TWO, made(Choosing))
    assert "Choosing.optim_groups is not called, since optim names several" in caplog.text


def test_one_of_several_optimizers_trains_the_parameters_of_the_loss() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        @override
        def forward(self, logits: Tensor, label: Tensor) -> Tensor:
            return functional.cross_entropy(self.scale * logits, label)

    class Bare(InOrder):
        batch_loss = None  # type: ignore[assignment]  # the loss is given

    for head in (TWO["head"], {**TWO["head"], "match": ["head", "loss.*"]}):
        loss = Scaled()
        trained({**TWO, "head": head}, made(), Bare(), loss=loss)
        assert loss.scale.item() != 1, head
