"""Accelerate: the hand-written loop with everything prepared by an Accelerator."""

from __future__ import annotations

from accelerate import Accelerator
from torch.nn import functional
from tqdm import tqdm

from peers.hand_written import evaluate
from work import LOG_EVERY, Job


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
        model.train()
        bar = tqdm(train_loader, desc=f"epoch {epoch + 1}")
        loss_sum = accuracy_sum = 0.0
        for step, (x, y) in enumerate(bar, start=1):
            scores = model(x)
            loss = functional.cross_entropy(scores, y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            loss_sum += loss.item()
            accuracy_sum += (scores.argmax(1) == y).float().mean().item()
            if step % LOG_EVERY == 0:
                bar.set_postfix(loss=loss_sum / LOG_EVERY, accuracy=accuracy_sum / LOG_EVERY)
                loss_sum = accuracy_sum = 0.0
        loss, accuracy = evaluate(model, val_loader)
        tqdm.write(f"epoch {epoch + 1}: val loss {loss:.4f}, val accuracy {accuracy:.4f}")
        accelerator.save_state(job.folder / f"epoch-{epoch + 1}")
