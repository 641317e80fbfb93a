"""Epochal: a task, and sections as a config would give them.

In ``minimal`` the loaders and the optimizer are the very objects that the hand-written loop gets.
In ``realistic`` the run also keeps its record and its checkpoints, as every run of Epochal does.
In ``as-user`` the data is ``ep.data.Tensors`` and the optimizer comes from a section.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional

import epochal as ep
from work import LOG_EVERY, LR, WEIGHT_DECAY, Job

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

Batch = tuple[Tensor, Tensor]
Numbers = dict[str, tuple[Tensor, int]]


class Classify(ep.Task):
    """Which class a sample belongs to."""

    def __init__(self, train_loader: DataLoader, val_loader: DataLoader | None = None) -> None:
        self.train_loader = train_loader
        self.val_loader = val_loader

    def batch_forward(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The score of each class."""
        return {"scores": model(batch[0])}

    def batch_loss(self, out: dict[str, Tensor], batch: Batch) -> Numbers:
        """Cross entropy."""
        return {"loss": (functional.cross_entropy(out["scores"], batch[1]), len(batch[1]))}


class Measured(Classify):
    """The same with the accuracy of each batch."""

    def batch_metric(self, out: dict[str, Tensor], batch: Batch) -> Numbers:
        """The share of right answers."""
        hits = out["scores"].argmax(1) == batch[1]
        return {"accuracy": (hits.float().mean(), len(batch[1]))}


def fit(**sections: object) -> None:
    """Train on the CPU, and raise what goes wrong."""
    choices = {"device": "cpu", "raise_errors": True, **sections.pop("choices", {})}
    ep.Experiment(choices=choices, **sections).fit()


QUIET = {
    "train": {"for": "1ep"},
    "log": {"console_every": 0, "record_every": 0, "level": "error"},
    "choices": {"no_file": True},
}


def minimal(job: Job) -> None:
    """Nothing logged, nothing written."""
    fit(task=Classify(job.train_loader), model=job.model, optim=job.optimizer, **QUIET)


def as_user(job: Job) -> None:
    """Data in memory as ``ep.data.Tensors``, and the optimizer that a config gets."""
    data = ep.data.Tensors(*job.train_loader.dataset.tensors)
    loader = data.loader(batch_size=job.train_loader.batch_size)
    optim = {"type": "AdamW", "lr": LR, "weight_decay": WEIGHT_DECAY}
    fit(task=Classify(loader), model=job.model, optim=optim, **QUIET)


def realistic(job: Job) -> None:
    """The usual bar and record, loss in evaluations too, and a checkpoint each epoch."""
    fit(
        task=Measured(job.train_loader, job.val_loader),
        model=job.model,
        optim=job.optimizer,
        train={"for": f"{job.epochs}ep", "eval_loss": True, "sanity_batches": 0},
        log={"console_every": f"{LOG_EVERY}st", "record_every": f"{LOG_EVERY}st"},
        record={"log_dir": str(job.folder)},
    )
