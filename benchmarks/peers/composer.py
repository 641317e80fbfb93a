"""Composer: a ComposerModel and a Trainer; metrics are those of torchmetrics, as its guide shows.

It declares torch below 2.7.1, and imports torchvision, which has no CPU build for the torch used
here, and mcli, the client of a cloud service. Empty stand-ins satisfy these imports; nothing that
is measured uses them. Its figures on a set-up that it supports may differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn import functional
from torchmetrics import Metric  # noqa: TC002  # stays above the stand-ins
from torchmetrics.classification import MulticlassAccuracy

from peers.stand_in import stand_in

stand_in("torchvision", "mcli")

from composer import Trainer  # noqa: E402  # it needs the stand-ins
from composer.models import ComposerModel  # noqa: E402  # same

if TYPE_CHECKING:
    from work import Job

Batch = tuple[Tensor, Tensor]


class Classify(ComposerModel):
    """The model with its loss."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.model = job.model

    def forward(self, batch: Batch) -> Tensor:
        """The score of each class."""
        return self.model(batch[0])

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Cross entropy."""
        return functional.cross_entropy(outputs, batch[1])


class Measured(Classify):
    """The same with the accuracy of each batch."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.train_accuracy = MulticlassAccuracy(job.classes, average="micro")
        self.val_accuracy = MulticlassAccuracy(job.classes, average="micro")

    def get_metrics(self, is_train: bool = False) -> dict[str, Metric]:
        """The metric objects of training or evaluation."""
        return {"accuracy": self.train_accuracy if is_train else self.val_accuracy}

    def update_metric(self, batch: Batch, outputs: Tensor, metric: Metric) -> None:
        """Add a batch to a metric."""
        metric.update(outputs, batch[1])


def trainer(job: Job, model: ComposerModel, **options: object) -> Trainer:
    """What both cases share."""
    return Trainer(
        model=model,
        train_dataloader=job.train_loader,
        optimizers=job.optimizer,
        max_duration=f"{job.epochs}ep",
        device="cpu",
        **options,
    )


def minimal(job: Job) -> None:
    """Everything off that can be turned off."""
    trainer(job, Classify(job), progress_bar=False).fit()


def realistic(job: Job) -> None:
    """Its own bar, which also shows the loss, and checkpoints; its evaluation has no loss."""
    trainer(
        job,
        Measured(job),
        eval_dataloader=job.val_loader,
        save_folder=str(job.folder),
        save_interval="1ep",
        progress_bar=True,
    ).fit()
