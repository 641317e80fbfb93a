"""Accelerate: the hand-written loop with everything prepared by an Accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accelerate import Accelerator
from torch.nn import functional

from peers.hand_written import report, train_epoch

if TYPE_CHECKING:
    from work import Job


def minimal(job: Job) -> None:
    """Nothing but the steps."""
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(job.model, job.optimizer, job.train_loader)
    model.train()
    for x, y in loader:
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()


def realistic(job: Job) -> None:
    """Bar and means like the hand-written loop; its own ``save_state``."""
    accelerator = Accelerator(cpu=True)
    model, optimizer, train_loader, val_loader = accelerator.prepare(
        job.model, job.optimizer, job.train_loader, job.val_loader
    )
    for epoch in range(job.epochs):
        train_epoch(epoch, model, optimizer, train_loader, backward=accelerator.backward)
        report(epoch, model, val_loader)
        accelerator.save_state(job.folder / f"epoch-{epoch + 1}")
