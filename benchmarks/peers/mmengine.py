"""mmengine: a BaseModel and a Runner; it has no bar, its log lines stand for one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from torch.nn import functional

from work import LOG_EVERY, Job

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT_HOOKS = (
    "runtime_info",
    "timer",
    "sampler_seed",
    "logger",
    "param_scheduler",
    "checkpoint",
)


class Classify(BaseModel):
    """The model with its loss."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.model = job.model

    def forward(self, x: Tensor, y: Tensor, mode: str) -> dict[str, Tensor]:
        """The loss of a batch."""
        return {"loss": functional.cross_entropy(self.model(x), y)}


class Measured(Classify):
    """The same with the accuracy of each batch, and predictions."""

    def forward(self, x: Tensor, y: Tensor, mode: str) -> dict[str, Tensor] | list[Tensor]:
        """Loss and accuracy in training, loss and hits of each sample in evaluation."""
        scores = self.model(x)
        loss = functional.cross_entropy(scores, y)
        hits = (scores.argmax(1) == y).float()
        if mode == "loss":
            return {"loss": loss, "accuracy": hits.mean()}
        return [loss, hits.mean()]


class Means(BaseMetric):
    """Mean loss and accuracy of an evaluation."""

    def process(self, data_batch: object, data_samples: list[Tensor]) -> None:
        """Keep the numbers of a batch."""
        self.results.append(tuple(float(value) for value in data_samples))

    def compute_metrics(self, results: list[tuple[float, float]]) -> dict[str, float]:
        """Their means."""
        losses, accuracies = zip(*results, strict=True)
        return {
            "loss": sum(losses) / len(losses),
            "accuracy": sum(accuracies) / len(accuracies),
        }


def runner(job: Job, model: BaseModel, **options: object) -> Runner:
    """What both cases share."""
    return Runner(
        model=model,
        work_dir=str(job.folder),
        train_dataloader=job.train_loader,
        train_cfg={"by_epoch": True, "max_epochs": job.epochs, "val_interval": 1},
        optim_wrapper=OptimWrapper(job.optimizer),
        experiment_name=job.folder.name,
        **options,
    )


def minimal(job: Job) -> None:
    """Without any of its default hooks."""
    hooks = dict.fromkeys(DEFAULT_HOOKS)
    runner(job, Classify(job), default_hooks=hooks, log_level=logging.ERROR).train()


def realistic(job: Job) -> None:
    """Its default hooks: log, timer, checkpoints."""
    hooks = {
        "logger": {"type": "LoggerHook", "interval": LOG_EVERY},
        "checkpoint": {"type": "CheckpointHook", "interval": 1},
    }
    runner(
        job,
        Measured(job),
        default_hooks=hooks,
        val_dataloader=job.val_loader,
        val_cfg={},
        val_evaluator=[Means()],
    ).train()
