"""Lightning: a module and a Trainer; metrics are those of torchmetrics, as its guide shows.

Of its two bars it gets the one with tqdm, which is the cheaper one.
"""

from __future__ import annotations

import logging
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from torch import Tensor
from torch.nn import functional
from torchmetrics.classification import MulticlassAccuracy

from work import LOG_EVERY, Job

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")

Batch = tuple[Tensor, Tensor]


class Classify(lightning.LightningModule):
    """The model with its loss."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.model = job.model
        self.optimizer = job.optimizer

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        x, y = batch
        return functional.cross_entropy(self.model(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer."""
        return self.optimizer


class Measured(Classify):
    """The same with logged loss and accuracy, and an evaluation."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.train_accuracy = MulticlassAccuracy(job.classes, average="micro")
        self.val_accuracy = MulticlassAccuracy(job.classes, average="micro")

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The loss of a batch, with its accuracy."""
        x, y = batch
        scores = self.model(x)
        loss = functional.cross_entropy(scores, y)
        self.train_accuracy(scores, y)
        self.log("train_loss", loss, prog_bar=True)
        self.log("train_accuracy", self.train_accuracy, prog_bar=True)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Loss and accuracy of a held-out batch."""
        x, y = batch
        scores = self.model(x)
        self.val_accuracy(scores, y)
        self.log("val_loss", functional.cross_entropy(scores, y), prog_bar=True)
        self.log("val_accuracy", self.val_accuracy, prog_bar=True)


def minimal(job: Job) -> None:
    """Everything off that can be turned off."""
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=job.folder,
    )
    trainer.fit(Classify(job), job.train_loader)


def realistic(job: Job) -> None:
    """Its own bar, logger and checkpoints."""
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=job.epochs,
        log_every_n_steps=LOG_EVERY,
        num_sanity_val_steps=0,
        enable_model_summary=False,
        default_root_dir=job.folder,
        callbacks=[TQDMProgressBar(), ModelCheckpoint(every_n_epochs=1, save_top_k=-1)],
    )
    trainer.fit(Measured(job), job.train_loader, job.val_loader)
