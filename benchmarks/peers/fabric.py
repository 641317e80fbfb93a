"""Lightning Fabric: the hand-written loop with its model, optimizer and loaders set up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning.fabric import Fabric
from torch.nn import functional

from peers.hand_written import report, train_epoch

if TYPE_CHECKING:
    from work import Job


def minimal(job: Job) -> None:
    """Nothing but the steps."""
    fabric = Fabric(accelerator="cpu", devices=1)
    model, optimizer = fabric.setup(job.model, job.optimizer)
    loader = fabric.setup_dataloaders(job.train_loader)
    model.train()
    for x, y in loader:
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()


def realistic(job: Job) -> None:
    """Bar and means like the hand-written loop; its own ``save``."""
    fabric = Fabric(accelerator="cpu", devices=1)
    model, optimizer = fabric.setup(job.model, job.optimizer)
    train_loader, val_loader = fabric.setup_dataloaders(job.train_loader, job.val_loader)
    for epoch in range(job.epochs):
        train_epoch(epoch, model, optimizer, train_loader, backward=fabric.backward)
        report(epoch, model, val_loader)
        state = {"model": model, "optimizer": optimizer}
        fabric.save(job.folder / f"epoch-{epoch + 1}.ckpt", state)
