"""The digits task: scikit-learn's 8x8 scans, their loss and their accuracy."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import epochal as ep

Batch = dict[str, Tensor]


class Digits(ep.Task):
    """Classify 1,797 grey scans of 8x8 pixels into ten digits.

    Args:
        batch_size: Scans per batch, the same for every split.
        val_share: Share of the scans for validation; the test split has the same size.
        split_seed: Seeds the split. Independent of the run's seed, so that runs with other
            seeds use the same validation scans.
    """

    def __init__(
        self, *, batch_size: int = 64, val_share: float = 0.15, split_seed: int = 0
    ) -> None:
        scans = load_digits()
        # Scale and shape the samples here, not in `forward`.
        images = torch.tensor(scans.images[:, None] / 16, dtype=torch.float32)  # (N, 1, 8, 8)
        labels = torch.tensor(scans.target)  # (N,)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(split_seed))
        size = int(val_share * len(labels))

        def split(chosen: Tensor) -> ep.data.Tensors:
            return ep.data.Tensors(image=images[chosen], label=labels[chosen])

        self.val_loader = split(order[:size]).loader(batch_size=batch_size)
        self.test_loader = split(order[size : 2 * size]).loader(batch_size=batch_size)
        self.train_loader = split(order[2 * size :]).loader(batch_size=batch_size, shuffle=True)

    def batch_forward(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The logits of a batch."""
        return {"logits": model(batch["image"])}  # (B, 1, 8, 8) -> (B, 10)

    def batch_loss(self, out: dict[str, Tensor], batch: Batch) -> dict[str, tuple[Tensor, int]]:
        """The loss to minimise, with the number of scans it is a mean over."""
        loss = cross_entropy(out["logits"], batch["label"])
        return {"loss": (loss, len(batch["label"]))}

    def batch_metric(self, out: dict[str, Tensor], batch: Batch) -> dict[str, tuple[Tensor, int]]:
        """The accuracy."""
        correct = out["logits"].argmax(dim=1) == batch["label"]  # (B,)
        return {"acc": (correct.float().mean(), len(correct))}
