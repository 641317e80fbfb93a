"""A training written for Accelerate, and the same one in Epochal; two processes import it, too."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import epochal as ep
from epochal.adapters.accelerate import AccelerateExperiment
from epochal.engine import Train


class Classify(ep.Task):
    """The body of a loop, in the methods of a task."""

    def __init__(self) -> None:
        self.train_loader, self.val_loader = load_points(), load_points()

    def batch_forward(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        return {"logits": model(batch[0])}

    def batch_loss(self, out: dict[str, Tensor], batch: Any) -> dict[str, Any]:
        return {"loss": (cross_entropy(out["logits"], batch[1]), len(batch[1]))}

    def batch_metric(self, out: dict[str, Tensor], batch: Any) -> dict[str, Any]:
        logits, labels = self.accelerator.gather_for_metrics((out["logits"], batch[1]))
        return {"acc": ((logits.argmax(1) == labels).float().mean(), len(labels))}


class OwnSteps(Train):
    """The body of a loop as it was written for Accelerate."""

    def prepare(self, run: Any) -> None:
        super().prepare(run)
        self.accelerator = run.task.accelerator
        self.model, self.optimizer = self.accelerator.prepare(run.model, run.optimizer)

    def train_step(self, run: Any, microbatches: Any) -> None:
        for batch in microbatches:
            with self.accelerator.accumulate(self.model):
                outcome = run.train_batch(batch)
                self.accelerator.backward(outcome.loss)
                if self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
            run.finish_batch(outcome)


def load_points(*, shuffle: bool = False) -> DataLoader[Any]:
    x = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=8, shuffle=shuffle)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))


def train_there(accelerator: Any, model: nn.Module, epochs: int = 2) -> float:
    """Train and evaluate as the examples of Accelerate do; gives the accuracy."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    model, optimizer, loader, val_loader, scheduler = accelerator.prepare(
        model, optimizer, load_points(), load_points(), scheduler
    )
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(cross_entropy(model(x), y))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
    model.eval()
    correct: list[Tensor] = []
    for x, y in val_loader:
        with torch.no_grad():
            logits = model(x)
        logits, labels = accelerator.gather_for_metrics((logits, y))
        correct.append(logits.argmax(1) == labels)
    return torch.cat(correct).float().mean().item()


def train_here(accelerator: Any, model: nn.Module, **sections: Any) -> ep.RunResult:
    parts = {"task": Classify(), "model": model, "optim": {"type": "AdamW", "lr": 0.1, "clip": 1.0}}
    parts |= {"schedule": {"type": "ExponentialLR", "gamma": 0.9, "unit": "step"}}
    parts |= {"train": {"for": "2ep"}, "log": {"console_every": 0, "level": "error"}}
    parts |= {"choices": {"no_file": True}} | sections
    return AccelerateExperiment(accelerator=accelerator, **parts).fit()


def compare(accelerator: Any) -> None:
    """Train in Accelerate and twice here: all weights are equal bit for bit."""
    theirs = make_model()
    ours, own_steps = copy.deepcopy(theirs), copy.deepcopy(theirs)
    accuracy = train_there(accelerator, theirs)
    result = train_here(accelerator, own_steps, runner=OwnSteps())
    assert result.metrics["val/acc"] == accuracy
    train_here(accelerator, ours)
    is_short = 8 % accelerator.gradient_accumulation_steps  # Accelerate shrinks a short last step
    for name, model in (("usual", ours), ("own", own_steps)):
        pairs = zip(theirs.parameters(), model.parameters(), strict=True)
        is_equal = all(torch.equal(one, other) for one, other in pairs)
        assert is_equal or (is_short and model is ours), (name, accelerator.mixed_precision)


def check_methods(accelerator: Any) -> None:
    """Use the methods of an Accelerator in a hook of two processes."""

    class Look(ep.Hook):
        def epoch_end(self, run: ep.Run, split: str, metrics: dict[str, float]) -> None:
            if split == "train":
                ranks = accelerator.gather(torch.tensor([accelerator.process_index]))
                assert ranks.tolist() == [0, 1]
                assert accelerator.is_main_process == run.is_main
                assert accelerator.unwrap_model(run.trained_model) is run.raw_model
                accelerator.wait_for_everyone()

    train_here(accelerator, make_model(), hooks=[Look()], train={"for": "1ep"})
