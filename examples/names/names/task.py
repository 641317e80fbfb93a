"""The task: a tag for each word, and the share of words with the right one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import epochal as ep
from names.pipes import encode, parse

Batch = dict[str, Tensor]


class Names(ep.Task):
    """Tag each word of a sentence as person, place or other; loaders are in the config."""

    def input_sample(self, row: dict[str, str]) -> dict[str, Any]:
        """A sample of a row of ``epochal predict --input``, such as ``{"text": "Ada left"}``."""
        return encode(parse(row["text"]))

    def batch_forward(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The logits of all words: (B, T, 3)."""
        return {"logits": model(batch["word"], batch["is_upper"])}

    def batch_loss(self, out: dict[str, Tensor], batch: Batch) -> dict[str, tuple[Tensor, int]]:
        """The mean loss of the words; padding does not count."""
        logits, tags = out["logits"][batch["mask"]], batch["tag"][batch["mask"]]  # (N, 3), (N,)
        return {"loss": (cross_entropy(logits, tags), len(tags))}

    def batch_metric(self, out: dict[str, Tensor], batch: Batch) -> dict[str, tuple[Tensor, int]]:
        """The accuracy of the words."""
        is_right = (out["logits"].argmax(dim=2) == batch["tag"])[batch["mask"]]  # (N,)
        return {"acc": (is_right.float().mean(), len(is_right))}


class Tagger(nn.Module):
    """Looks at each word and its neighbours.

    Args:
        vocab: Number of word ids.
        width: Size of a word's vector.
    """

    def __init__(self, *, vocab: int = 512, width: int = 24) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, width, padding_idx=0)
        self.neighbours = nn.Linear(3 * (width + 1), width)
        self.head = nn.Linear(width, 3)

    def forward(self, word: Tensor, is_upper: Tensor) -> Tensor:
        """Logits: (B, T) and (B, T) -> (B, T, 3)."""
        features = torch.cat([self.words(word), is_upper[..., None]], dim=2)  # (B, T, W + 1)
        padded = nn.functional.pad(features, (0, 0, 1, 1))  # (B, T + 2, W + 1)
        around = torch.cat([padded[:, :-2], features, padded[:, 2:]], dim=2)  # (B, T, 3 (W + 1))
        hidden = self.neighbours(around).relu()  # (B, T, W)
        logits: Tensor = self.head(hidden)
        return logits
