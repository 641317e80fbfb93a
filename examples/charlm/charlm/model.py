"""A small GPT: pre-norm transformer blocks with causal attention.

Shapes: B batch, T characters, D width, N heads, K width of a head (D = N * K).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

VOCABULARY = 256  # a character is one byte


class Attention(nn.Module):
    """Causal multi-head self-attention.

    Args:
        width: Embedding size per character.
        heads: Number of heads; must divide ``width``.
    """

    def __init__(self, *, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Attend along the text: (B, T, D) -> (B, T, D)."""
        per_head = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # (B, T, 3, N, K)
        q, k, v = per_head.permute(2, 0, 3, 1, 4)  # 3 x (B, N, T, K)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, N, T, K)
        joined: Tensor = self.out(mixed.transpose(1, 2).flatten(-2))  # (B, T, N, K) -> (B, T, D)
        return joined


class Block(nn.Module):
    """Attention and an MLP, both with a residual connection.

    Args:
        width: Embedding size per character.
        heads: Number of attention heads.
        dropout: Dropout probability of each residual branch.
    """

    def __init__(self, *, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(width), Attention(width=width, heads=heads))
        self.mlp = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """One transformer block: (B, T, D) -> (B, T, D)."""
        x = x + self.dropout(self.attention(x))
        branch: Tensor = self.dropout(self.mlp(x))
        return x + branch


class Gpt(nn.Module):
    """A character-level GPT.

    Args:
        layers: Number of blocks.
        width: Embedding size per character.
        heads: Attention heads per block; must divide ``width``.
        context: Maximum length of the input.
        dropout: Dropout probability; 0 suits short runs.
    """

    def __init__(
        self,
        *,
        layers: int = 3,
        width: int = 128,
        heads: int = 4,
        context: int = 128,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width={width!r} cannot be shared by heads={heads!r}")
        self.context = context
        self.characters = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(_waves(context, width))
        self.blocks = nn.Sequential(
            *(Block(width=width, heads=heads, dropout=dropout) for _ in range(layers))
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next character at every position: (B, T) -> (B, T, 256)."""
        x = self.characters(tokens) + self.places[: tokens.shape[1]]  # (B, T, D) + (T, D)
        scores: Tensor = self.head(self.norm(self.blocks(x)))  # (B, T, D) -> (B, T, 256)
        return scores

    @torch.no_grad()
    def write(self, prompt: str, *, length: int, generator: torch.Generator) -> str:
        """``prompt`` followed by ``length`` characters sampled from the model."""
        device = self.characters.weight.device
        text = torch.tensor([list(prompt.encode())], device=device)  # (1, T)
        for _ in range(length):
            scores = self(text[:, -self.context :])[:, -1]  # (1, 256): the last position only
            drawn = torch.multinomial(scores.softmax(-1).cpu(), 1, generator=generator)  # (1, 1)
            text = torch.cat([text, drawn.to(device)], dim=1)  # (1, T + 1)
        return bytes(text[0].tolist()).decode(errors="replace")


def _waves(context: int, width: int) -> Tensor:
    """Initial position embeddings: sines and cosines, (T, D).

    With random ones, short runs spend most of their steps on learning the positions.
    """
    lengths = 1000 ** torch.linspace(0, 1, width // 2)  # (D/2,)
    angles = torch.arange(context).unsqueeze(1) / lengths  # (T, 1) / (D/2,) -> (T, D/2)
    return torch.cat([angles.sin(), angles.cos()], dim=1)  # (T, D)
