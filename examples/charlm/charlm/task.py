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
        batch_size: Windows per batch.
        context: Characters per window; at most the context of the model.
        max_bytes: How much of the library to read; it has about 10 MB.
        val_bytes: How much of the end of that text is used for validation.
    """

    count_unit = "characters"  # what the counts of the loss count: speeds are shown in it

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
        """Logits of the next character at every position."""
        return {"logits": model(batch["tokens"])}  # (B, T) -> (B, T, 256)

    def post_batch_forward(self, out: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Add the mean cross entropy in nats, which loss and metric share."""
        logits = out["logits"].flatten(0, 1)  # (B, T, 256) -> (B * T, 256)
        out["nats"] = cross_entropy(logits, batch["targets"].flatten())  # ()
        return out

    def batch_loss(self, out: dict[str, Tensor], batch: Batch) -> Named:
        """The cross entropy in nats, a mean over characters."""
        return {"loss": (out["nats"], batch["targets"].numel())}

    def batch_metric(self, out: dict[str, Tensor], batch: Batch) -> Named:
        """The cross entropy in bits per character; random guessing gives 8."""
        return {"bpc": (out["nats"].detach() / math.log(2), batch["targets"].numel())}
