"""Ignite: the trainer and evaluator of its quick start, with its own handlers and metrics."""

from __future__ import annotations

from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver, ProgressBar
from ignite.metrics import Accuracy, Loss, RunningAverage
from torch.nn import functional

from work import LOG_EVERY, Job


def minimal(job: Job) -> None:
    """Nothing attached to the trainer."""
    trainer = create_supervised_trainer(job.model, job.optimizer, functional.cross_entropy)
    trainer.run(job.train_loader, max_epochs=1)


def realistic(job: Job) -> None:
    """Its bar, running average, metrics and checkpoints."""
    trainer = create_supervised_trainer(
        job.model,
        job.optimizer,
        functional.cross_entropy,
        output_transform=lambda x, y, scores, loss: (loss.item(), scores, y),
    )
    RunningAverage(output_transform=lambda out: out[0]).attach(trainer, "loss")
    Accuracy(output_transform=lambda out: out[1:]).attach(trainer, "accuracy")
    metrics = {"loss": Loss(functional.cross_entropy), "accuracy": Accuracy()}
    evaluator = create_supervised_evaluator(job.model, metrics)
    bar = ProgressBar()
    bar.attach(
        trainer, metric_names=["loss"], event_name=Events.ITERATION_COMPLETED(every=LOG_EVERY)
    )

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine: Engine) -> None:
        found = evaluator.run(job.val_loader).metrics
        bar.log_message(f"epoch {engine.state.epoch}: {engine.state.metrics} val {found}")

    state = {"model": job.model, "optimizer": job.optimizer}
    saver = Checkpoint(state, DiskSaver(job.folder, require_empty=False), n_saved=None)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
    trainer.run(job.train_loader, max_epochs=job.epochs)
