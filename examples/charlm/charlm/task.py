"""The language task: predict each next character of Python's own sources."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import epochal as ep
from charlm.text import Windows, read_library

Batch = dict[str, Tensor]
Named = dict[str, tuple[Tensor, int]]


class CharLm(ep.Task):
    """Predict the next character; a character is one byte.

    Args:
        batch_size: Pieces per batch.
        context: Characters per piece; the model must be able to see as many.
        max_bytes: How much of the library to read; about 10 MB are there.
        val_bytes: How much of the end of that text is held back for validation.
    """

    def __init__(
        self,
        *,
        batch_size: int = 32,
        context: int = 128,
        max_bytes: int = 2_000_000,
        val_bytes: int = 65_536,
    ) -> None:
        text = read_library(max_bytes=max_bytes)
        if val_bytes >= len(text):
            raise ValueError(f"val_bytes={val_bytes!r} leaves nothing of {len(text)} to train on")
        self.train_loader = DataLoader(
            Windows(text[:-val_bytes], context=context), batch_size=batch_size, shuffle=True
        )
        self.val_loader = DataLoader(
            Windows(text[-val_bytes:], context=context), batch_size=batch_size
        )

    def batch_forward(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Scores of all 256 characters for every next place."""
        return {"logits": model(batch["tokens"])}  # (B, T) -> (B, T, 256)

    def post_batch_forward(self, out: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Add the mean surprise in nats, which both the loss and the metric need."""
        logits = out["logits"].flatten(0, 1)  # (B, T, 256) -> (B * T, 256)
        out["nats"] = cross_entropy(logits, batch["targets"].flatten())  # ()
        return out

    def batch_loss(self, out: dict[str, Tensor], batch: Batch) -> Named:
        """The surprise in nats, a mean over characters."""
        return {"loss": (out["nats"], batch["targets"].numel())}

    def batch_metric(self, out: dict[str, Tensor], batch: Batch) -> Named:
        """The surprise in bits per character; guessing blindly costs 8."""
        return {"bpc": (out["nats"].detach() / math.log(2), batch["targets"].numel())}
