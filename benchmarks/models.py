"""The models of the benchmark, with random data."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable


class Block(nn.Module):
    """One layer of a transformer: causal attention, then an MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The features after this layer."""
        batch, length, width = x.shape
        parts = (
            self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        mixed = functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_2(x))


class GptMini(nn.Module):
    """A small GPT: 2 layers of width 128 over 64 tokens."""

    vocabulary, length, width = 96, 64, 128

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(self.vocabulary, self.width)
        self.places = nn.Embedding(self.length, self.width)
        self.blocks = nn.Sequential(Block(self.width, 4), Block(self.width, 4))
        self.norm, self.head = nn.LayerNorm(self.width), nn.Linear(self.width, self.vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        """The scores of the next token: (batch, vocabulary, length)."""
        x = self.tokens(x) + self.places.weight
        return self.head(self.norm(self.blocks(x))).transpose(1, 2)


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def points(width: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Random points of 10 classes."""

    def draw(count: int) -> tuple[Tensor, Tensor]:
        return torch.randn(count, width), torch.randint(10, (count,))

    return draw


def texts(count: int) -> tuple[Tensor, Tensor]:
    """Random texts and the same moved by one token."""
    drawn = torch.randint(GptMini.vocabulary, (count, GptMini.length + 1))
    return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()
