"""The loop that people write by hand, against which everything is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional
from tqdm import tqdm

from work import LOG_EVERY, Job

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def minimal(job: Job) -> None:
    """Nothing but the steps."""
    model, optimizer = job.model, job.optimizer
    model.train()
    for x, y in job.train_loader:
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def realistic(job: Job) -> None:
    """A bar, running means every 50 steps, accuracy; each epoch an evaluation and a checkpoint."""
    model, optimizer = job.model, job.optimizer
    for epoch in range(job.epochs):
        model.train()
        bar = tqdm(job.train_loader, desc=f"epoch {epoch + 1}")
        loss_sum = accuracy_sum = 0.0
        for step, (x, y) in enumerate(bar, start=1):
            scores = model(x)
            loss = functional.cross_entropy(scores, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss_sum += loss.item()
            accuracy_sum += (scores.argmax(1) == y).float().mean().item()
            if step % LOG_EVERY == 0:
                bar.set_postfix(loss=loss_sum / LOG_EVERY, accuracy=accuracy_sum / LOG_EVERY)
                loss_sum = accuracy_sum = 0.0
        loss, accuracy = evaluate(model, job.val_loader)
        tqdm.write(f"epoch {epoch + 1}: val loss {loss:.4f}, val accuracy {accuracy:.4f}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, job.folder / f"epoch-{epoch + 1}.pt")


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> tuple[float, float]:
    """Mean loss and accuracy on held-out data; Fabric and Accelerate use it, too."""
    model.eval()
    loss_sum = accuracy_sum = 0.0
    for x, y in loader:
        scores = model(x)
        loss_sum += functional.cross_entropy(scores, y).item()
        accuracy_sum += (scores.argmax(1) == y).float().mean().item()
    return loss_sum / len(loader), accuracy_sum / len(loader)
