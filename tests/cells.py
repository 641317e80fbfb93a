"""One small training per kind of run, for tests that resume runs."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset, TensorDataset

from epochal.components.average import Ema, Swa
from epochal.components.metrics import Mean
from epochal.components.schedules import Cosine, Exponential, Noam
from epochal.config import parse_duration
from epochal.engine import (
    Average,
    Environment,
    Monitor,
    Options,
    Parts,
    Run,
    Task,
    TorchSchedule,
    Warmup,
)
from epochal.engine.create_run import create_run
from epochal.engine.interfaces.options import EngineOptions, LogOptions, OptimOptions, TrainOptions
from epochal.engine.interfaces.schedule import OptimizerSchedules
from epochal.engine.interfaces.stage import Plateau, Stage
from epochal.engine.loss.loss import Loss, LossTerm
from epochal.engine.loss.metric_adapter import MetricAdapter
from epochal.engine.optim.multi_optimizer import Member, MemberOptions, Optimizers
from epochal.hooks.early_stopping import EarlyStopping
from epochal.hooks.mixing import CutMix, Mixup
from epochal.hooks.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch.optim import Optimizer

SAMPLES, BATCH, EPOCHS = 14, 4, 3  # the last batch of an epoch is a small one
STEPS = 4 * EPOCHS


def image(index: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(index)
    x = torch.randn(2, 4, 4, generator=generator)
    return x, x.mean().reshape(1)


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Draws from the generators of Python, numpy and torch for each sample."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = image(index)
        noise = torch.randn(2, 4, 4) * np.random.uniform(0.1, 0.5)
        return (x.flip(2) if random.random() < 0.5 else x) + noise, y


class Averages(Task):
    """Learn the mean of an image."""

    def __init__(self, *, is_augmented: bool, num_workers: int, batch_size: int) -> None:
        plain = TensorDataset(*map(torch.stack, zip(*map(image, range(SAMPLES)), strict=True)))
        self.train_loader: DataLoader[Any] = DataLoader(
            Augmented() if is_augmented else plain,
            batch_size=batch_size,
            shuffle=True,
            num_workers=num_workers,
        )
        self.val_loader: DataLoader[Any] = DataLoader(plain, batch_size=8)

    def batch_forward(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        return {"mean": model(batch[0])}

    def batch_loss(self, out: dict[str, Tensor], batch: Any) -> dict[str, Any]:
        loss = functional.mse_loss(out["mean"].to(batch[1].dtype), batch[1])
        return {"loss": (loss, len(batch[1]))}

    def batch_metric(self, out: dict[str, Tensor], batch: Any) -> dict[str, Any]:
        return {"mae": ((out["mean"] - batch[1]).abs().mean(), len(batch[1]))}


class Unsaid(Averages):
    """Leaves the loss to the config."""

    batch_loss = None  # type: ignore[assignment]


class Net(nn.Module):
    """A convolution with batch norm and dropout; ``tied`` shares a weight, ``frozen`` stops one."""

    def __init__(self, *, tied: bool, frozen: bool, dropout: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(16, 1)
        if tied:
            self.second.weight = self.first.weight
        if frozen:
            self.conv.requires_grad_(False)
            self.first.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu().flatten(1)
        x = self.second(torch.tanh(self.first(x)))
        return self.head(self.dropout(x))


def adamw(parameters: Any, **options: Any) -> Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01, **options)


def sgd(parameters: Any) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True)


def lbfgs(parameters: Any) -> Optimizer:
    return torch.optim.LBFGS(
        parameters, lr=0.1, max_iter=3, history_size=3, line_search_fn="strong_wolfe"
    )


def grouped(parameters: Any) -> Optimizer:
    """Two named groups with other options than the rest."""
    groups = [
        {"params": parameters[:3], "lr": 0.003, "name": "body"},
        {"params": parameters[3:6], "weight_decay": 0.0, "betas": (0.8, 0.9), "name": "middle"},
        {"params": parameters[6:], "name": "rest"},
    ]
    return adamw(groups)


def several(parameters: Any) -> Optimizers:
    """Two optimizers; one of them steps only every third time."""
    rare = MemberOptions(every=3, clip=0.05)
    return Optimizers(
        [Member("rare", sgd(parameters[:4]), rare), Member("usual", grouped(parameters[4:]))]
    )


def both_ways(optimizer: Any) -> OptimizerSchedules:
    """A scheduler of torch for one of them, one of ours for the other."""
    scheduler = TorchSchedule(lr_scheduler.ExponentialLR(optimizer["rare"], 0.9))
    usual = Warmup(Cosine(), 2)
    members = {"rare": (optimizer["rare"], scheduler), "usual": (optimizer["usual"], usual)}
    return OptimizerSchedules(members)


def one_cycle(optimizer: Optimizer) -> TorchSchedule:
    return TorchSchedule(lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=STEPS + 1))


def plateau(optimizer: Optimizer) -> TorchSchedule:
    return TorchSchedule(lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, cooldown=1))


def cosine(optimizer: Optimizer) -> Warmup:
    return Warmup(Cosine(restarts=1, peak_decay=0.5), 2)


def warm_epochs(optimizer: Optimizer) -> Warmup:
    """A warm-up by steps, then a schedule by epochs."""
    schedule = Exponential(gamma=0.5, every="1ep")
    schedule.unit = "epoch"
    return Warmup(schedule, 6)


def warm_one_cycle(optimizer: Optimizer) -> Warmup:
    return Warmup(one_cycle(optimizer), 3, start=0.1)


def warm_plateau(optimizer: Optimizer) -> Warmup:
    return Warmup(plateau(optimizer), "1ep")


def warm_chain(optimizer: Optimizer) -> Warmup:
    """Schedulers of torch one after the other, by epochs."""
    parts = [lr_scheduler.LinearLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.5)]
    chain = lr_scheduler.SequentialLR(optimizer, parts, milestones=[1])
    return Warmup(TorchSchedule(chain, unit="epoch"), 2)


def remake(model: nn.Module, changes: Sequence[Mapping[str, Any]]) -> tuple[Optimizer, Any]:
    """The optimizer that an experiment would build from ``adamw`` after some changes."""
    options: dict[str, Any] = {"type": "AdamW", "lr": 0.01}
    own: dict[str, Any] = {}
    for change in changes:
        options = {} if "type" in change else options
        for name, value in change.items():
            if name != "state":
                (own if name in ("clip", "accumulate") else options)[name] = value
    kind = getattr(torch.optim, options.pop("type"))
    trained = [one for one in model.parameters() if one.requires_grad]
    return kind(trained, **options), OptimOptions(**own)


def step_down(optimizer: Optimizer) -> TorchSchedule:
    return TorchSchedule(lr_scheduler.StepLR(optimizer, 2, gamma=0.5))


def stages(*given: dict[str, Any]) -> tuple[Stage, ...]:
    """Stages of the given lengths."""
    return tuple(
        Stage(**(one | {"name": f"s{index}", "length": parse_duration(one["length"])}))
        for index, one in enumerate(given)
    )


STAGED = stages(
    {"length": "3st", "freeze": ("conv", "norm")},
    {
        "length": "6st",
        "unfreeze": ("conv.*",),
        "optim": {"type": "SGD", "lr": 0.05, "momentum": 0.9},
        "batch_size": 5,
    },
    {"length": "1ep", "optim": {"lr": 0.01, "clip": 0.1, "accumulate": 2}},
)
"""Changes of optimizer, batch size and frozen parts, also within an epoch."""

FROZEN = stages(
    {"length": "2st", "freeze": ("conv",)},
    {"length": "1ep", "batch_size": 3},
    {"length": "4st", "unfreeze": ("conv",), "freeze": ("head",)},
)
"""Changes that every optimizer allows."""

SCHEDULED = stages(
    {"length": "2st", "schedule": step_down},
    {"length": "20st", "until": Plateau(2), "optim": {"weight_decay": 0.3}},
    {"length": "3st", "schedule": step_down, "optim": {"lr": 0.02, "state": "reset"}},
    {"length": "9sa", "optim": {"type": "LBFGS", "lr": 0.1, "max_iter": 2}},
)
"""Stages with and without a schedule, and one that a metric ends."""


def mixing() -> tuple[Mixup, CutMix]:
    parts = {"input": "0", "target": "1", "classes": 2}
    return Mixup(**parts), CutMix(prob=0.5, **parts)  # type: ignore[arg-type]  # texts and a number


class Learned(nn.Module):
    """A term with a parameter, a buffer, a plain count and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0

    def forward(self, out: Any, batch: Any) -> Tensor:
        self.seen += 1
        self.calls += 1
        noise = torch.randn_like(batch[1]) / self.seen / self.calls
        return (out["mean"] * self.scale - batch[1] + noise).square().mean()


def terms() -> Loss:
    return Loss(
        [LossTerm(nn.MSELoss(), name="mse"), LossTerm(Learned(), name="learned", weight=0.3)]
    )


CELLS: dict[str, dict[str, Any]] = {
    "stages": {"stages": STAGED, "average": 0.9, "dropout": 0.3},
    "stages, warm epochs": {"stages": FROZEN, "schedule": warm_plateau, "eval_every": "1st"},
    "stages, one cycle": {"stages": FROZEN, "schedule": one_cycle, "clip": 0.1},
    "stages with schedules": {"stages": SCHEDULED, "schedule": cosine, "eval_every": "1st"},
    "stages, augmented": {
        "stages": STAGED,
        "is_augmented": True,
        "engine": {"on_nonfinite": "skip"},
    },
    "shuffled": {},
    "dropout": {"dropout": 0.4},
    "augmented": {"is_augmented": True},
    "accumulation": {"accumulate": 2},
    "cosine": {"schedule": cosine},
    "one cycle": {"schedule": one_cycle},
    "noam": {"schedule": lambda _: Warmup(Noam(model_size=4), 5)},
    "warm-up, then by epochs": {"schedule": warm_epochs},
    "warm-up, then one cycle": {"schedule": warm_one_cycle},
    "warm-up, then plateau": {"schedule": warm_plateau, "eval_every": "2st"},
    "warm-up, then a chain": {"schedule": warm_chain},
    "plateau": {"schedule": plateau, "eval_every": "2st"},
    "average": {"average": 0.9},
    "average that warms up": {"average": Ema(decay=0.9, warmup=True)},
    "average every few steps": {"average": Ema(decay=0.5, every="3st")},
    "gradient noise": {"noise": 0.01, "clip": 0.5},
    "mixed batches": {"hooks": mixing, "dropout": 0.2},
    "loss of the config": {"loss": terms, "accumulate": 2},
    "mean of weights": {"average": Swa(start="1ep", every="2st")},
    "evaluations mid-epoch": {"eval_every": "3st", "average": 0.8},
    "epochs of samples": {"for_": "37sa", "eval_every": "9sa"},
    "fp64": {"engine": {"precision": "fp64"}, "dtype": "float64", "dropout": 0.2},
    "bf16": {"engine": {"precision": "bf16"}},
    "channels last, fused": {
        "engine": {"channels_last": True},
        "optimizer": lambda parameters: adamw(parameters, fused=True),
    },
    "tied": {"tied": True, "average": 0.9},
    "frozen": {"frozen": True, "average": 0.9},
    "lbfgs": {"optimizer": lbfgs},
    "momentum": {"optimizer": sgd, "schedule": one_cycle},
    "groups": {"optimizer": grouped, "schedule": cosine, "average": 0.9},
    "several optimizers": {"optimizer": several, "schedule": both_ways, "accumulate": 2},
    "several, in stages": {"optimizer": several, "schedule": both_ways, "stages": FROZEN},
    "several, guarded": {"optimizer": several, "engine": {"on_nonfinite": "skip"}},
    "clipped by value": {"clip": {"value": 0.01}, "accumulate": 2},
    "recomputed": {"engine": {"recompute": ["conv", "norm", "dropout"]}, "dropout": 0.4},
    "microbatches": {"engine": {"microbatch": 3, "recompute": ["first"]}, "dropout": 0.4},
    "microbatches found": {"engine": {"microbatch": "auto"}, "accumulate": 2, "clip": 0.1},
    "early stopping": {
        "hooks": lambda: (EarlyStopping(patience=2, min_delta=0.1, min_for="2ep"),),
        "eval_every": "1st",
    },
    "clipped": {"clip": 0.05, "engine": {"on_nonfinite": "skip"}, "accumulate": 3},
    "all at once": {
        "dropout": 0.3,
        "is_augmented": True,
        "accumulate": 2,
        "schedule": plateau,
        "average": 0.9,
        "eval_every": "1st",
        "tied": True,
        "frozen": True,
        "clip": 1.0,
        "engine": {"channels_last": True, "precision": "bf16"},
        "optimizer": lambda parameters: adamw(parameters, fused=True, amsgrad=True),
    },
}


def build(
    setting: dict[str, Any],
    *,
    optimizer: Callable[[Any], Optimizer] = adamw,
    schedule: Callable[[Optimizer], Any] | None = None,
    average: float | Average | None = None,
    engine: dict[str, Any] | None = None,
    **given: Any,
) -> Run:
    """A run of one cell; it shares no part with other runs."""
    torch.default_generator.manual_seed(7)
    names = ("tied", "frozen")
    model = Net(**{name: given.get(name, False) for name in names}, dropout=given.get("dropout", 0))
    place = {"dtype": given["dtype"]} if "dtype" in given else {}
    model = model.double() if place else model  # as an experiment does
    loss = given["loss"]() if "loss" in given else None
    learned = [] if loss is None else loss.parameters()
    optim = optimizer([one for one in (*model.parameters(), *learned) if one.requires_grad])
    accumulate = given.get("accumulate", 1)
    task = (Averages if loss is None else Unsaid)(
        is_augmented=given.get("is_augmented", False),
        num_workers=given.get("num_workers", 0),
        batch_size=BATCH if accumulate == 1 else BATCH // 2,
    )
    mean = MetricAdapter(Mean(), inputs={"value": "out.mean"}, on=("train",))
    parts = Parts(
        task=task,
        model=model,
        optimizer=optim,
        schedule=None if schedule is None else schedule(optim),
        average=Ema(decay=average) if isinstance(average, float) else copy.deepcopy(average),
        metrics={"mean": mean},
        monitor=Monitor("val/mae"),
        hooks=(Recording(every="2st"), EarlyStopping(patience=50), *given.get("hooks", tuple)()),
        loss=loss,
        stages=given.get("stages", ()),
        make_optimizer=remake if "stages" in given and optimizer is adamw else None,
    )
    options = Options(
        train=TrainOptions(
            for_=given.get("for_", f"{EPOCHS}ep"), eval_every=given.get("eval_every", "1ep")
        ),
        engine=EngineOptions(**(engine or {})),
        optim=OptimOptions(accumulate=accumulate, clip=given.get("clip"), noise=given.get("noise")),
        log=LogOptions(grad_norm=optimizer is not lbfgs and given.get("stages") is not SCHEDULED),
    )
    return create_run(parts, options, Environment(**setting, **place))
