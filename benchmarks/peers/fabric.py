"""Lightning Fabric: the hand-written loop with its model, optimizer and loaders set up."""

from __future__ import annotations

from lightning.fabric import Fabric
from torch.nn import functional
from tqdm import tqdm

from peers.hand_written import evaluate
from work import LOG_EVERY, Job


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
        model.train()
        bar = tqdm(train_loader, desc=f"epoch {epoch + 1}")
        loss_sum = accuracy_sum = 0.0
        for step, (x, y) in enumerate(bar, start=1):
            scores = model(x)
            loss = functional.cross_entropy(scores, y)
            optimizer.zero_grad()
            fabric.backward(loss)
            optimizer.step()
            loss_sum += loss.item()
            accuracy_sum += (scores.argmax(1) == y).float().mean().item()
            if step % LOG_EVERY == 0:
                bar.set_postfix(loss=loss_sum / LOG_EVERY, accuracy=accuracy_sum / LOG_EVERY)
                loss_sum = accuracy_sum = 0.0
        loss, accuracy = evaluate(model, val_loader)
        tqdm.write(f"epoch {epoch + 1}: val loss {loss:.4f}, val accuracy {accuracy:.4f}")
        state = {"model": model, "optimizer": optimizer}
        fabric.save(job.folder / f"epoch-{epoch + 1}.ckpt", state)
