"""The loop that people write by hand, against which everything is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional
from tqdm import tqdm

from work import LOG_EVERY, Job

if TYPE_CHECKING:
    from collections.abc import Callable

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
        train_epoch(epoch, model, optimizer, job.train_loader)
        report(epoch, model, job.val_loader)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, job.folder / f"epoch-{epoch + 1}.pt")


def train_epoch(
    epoch: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader,
    *,
    backward: Callable[[torch.Tensor], None] = torch.Tensor.backward,
) -> None:
    """The steps of an epoch; Fabric and Accelerate take them with a ``backward`` of their own."""
    model.train()
    bar = tqdm(loader, desc=f"epoch {epoch + 1}")
    loss_sum = accuracy_sum = 0.0
    for step, (x, y) in enumerate(bar, start=1):
        scores = model(x)
        loss = functional.cross_entropy(scores, y)
        optimizer.zero_grad()
        backward(loss)
        optimizer.step()
        loss_sum += loss.item()
        accuracy_sum += (scores.argmax(1) == y).float().mean().item()
        if step % LOG_EVERY == 0:
            bar.set_postfix(loss=loss_sum / LOG_EVERY, accuracy=accuracy_sum / LOG_EVERY)
            loss_sum = accuracy_sum = 0.0


def report(epoch: int, model: nn.Module, loader: DataLoader) -> None:
    """Evaluate after an epoch and print the result."""
    loss, accuracy = _evaluate(model, loader)
    tqdm.write(f"epoch {epoch + 1}: val loss {loss:.4f}, val accuracy {accuracy:.4f}")


@torch.no_grad()
def _evaluate(model: nn.Module, loader: DataLoader) -> tuple[float, float]:
    model.eval()
    loss_sum = accuracy_sum = 0.0
    for x, y in loader:
        scores = model(x)
        loss_sum += functional.cross_entropy(scores, y).item()
        accuracy_sum += (scores.argmax(1) == y).float().mean().item()
    return loss_sum / len(loader), accuracy_sum / len(loader)
