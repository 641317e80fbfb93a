"""The Trainer of transformers: a subclass with its own loss and loaders, as its guide shows.

It takes the norm of the gradient at every step, also with ``max_grad_norm=0``: no argument
stops it, so it stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR
from transformers import EvalPrediction, Trainer, TrainingArguments

from work import LOG_EVERY, Job

if TYPE_CHECKING:
    from torch.utils.data import DataLoader, Dataset

Batch = tuple[Tensor, Tensor]


class Classify(Trainer):
    """A Trainer with the loss of the job, over loaders that exist already."""

    def __init__(self, job: Job, args: TrainingArguments, **options: object) -> None:
        self.job = job
        steady = LambdaLR(job.optimizer, lambda step: 1.0)
        super().__init__(
            model=job.model,
            args=args,
            train_dataset=job.train_loader.dataset,
            eval_dataset=job.val_loader.dataset,
            optimizers=(job.optimizer, steady),
            **options,
        )

    def get_train_dataloader(self) -> DataLoader:
        """The loader of the job."""
        return self.accelerator.prepare(self.job.train_loader)

    def get_eval_dataloader(self, eval_dataset: Dataset | None = None) -> DataLoader:
        """The loader of the held-out data."""
        return self.accelerator.prepare(self.job.val_loader)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: int | None = None,
    ) -> Tensor:
        """Cross entropy."""
        x, y = inputs
        return functional.cross_entropy(model(x), y)


class Measured(Classify):
    """The same with the accuracy of each step, logged with the loss."""

    accuracy_sum, accuracy_count = 0.0, 0

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: int | None = None,
    ) -> Tensor:
        """Cross entropy; the accuracy is kept for the next log."""
        x, y = inputs
        scores = model(x)
        self.accuracy_sum += (scores.detach().argmax(1) == y).float().mean().item()
        self.accuracy_count += 1
        return functional.cross_entropy(scores, y)

    def log(self, logs: dict[str, float], *args: object, **options: object) -> None:
        """Add the mean accuracy since the last log."""
        if "loss" in logs and self.accuracy_count:
            logs["accuracy"] = self.accuracy_sum / self.accuracy_count
            self.accuracy_sum, self.accuracy_count = 0.0, 0
        super().log(logs, *args, **options)

    @torch.no_grad()
    def prediction_step(
        self,
        model: nn.Module,
        inputs: Batch,
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, best classes and labels of a held-out batch."""
        x, y = inputs
        scores = model(x)
        return functional.cross_entropy(scores, y), scores.argmax(1), y


def accuracy(found: EvalPrediction) -> dict[str, float]:
    """The share of right answers."""
    return {"accuracy": float((found.predictions == found.label_ids).mean())}


def arguments(job: Job, **options: object) -> TrainingArguments:
    """What both cases share."""
    return TrainingArguments(
        output_dir=str(job.folder),
        num_train_epochs=job.epochs,
        per_device_train_batch_size=job.train_loader.batch_size,
        per_device_eval_batch_size=job.val_loader.batch_size,
        max_grad_norm=0.0,
        use_cpu=True,
        report_to="none",
        **options,
    )


def minimal(job: Job) -> None:
    """Everything off that can be turned off."""
    quiet = {"logging_strategy": "no", "save_strategy": "no", "disable_tqdm": True}
    Classify(job, arguments(job, logging_nan_inf_filter=False, **quiet)).train()


def realistic(job: Job) -> None:
    """Its own bar, log and checkpoints."""
    args = arguments(
        job,
        logging_steps=LOG_EVERY,
        eval_strategy="epoch",
        save_strategy="epoch",
        disable_tqdm=False,
    )
    Measured(job, args, compute_metrics=accuracy).train()
