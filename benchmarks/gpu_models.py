"""The models of the GPU benchmark: a perceptron, ResNet-18 for small images, GPT-2."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

CLASSES = 10


class Tiny(nn.Sequential):
    """A perceptron of 32-64-10."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, CLASSES))


class Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: Tensor) -> Tensor:
        """The block's features."""
        out = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 for 32x32 images: a 3x3 stem, no pooling before the blocks."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        inner = width
        for level, outer in enumerate((width, 2 * width, 4 * width, 8 * width)):
            blocks.append(Residual(inner, outer, 1 if level == 0 else 2))
            blocks.append(Residual(outer, outer, 1))
            inner = outer
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inner, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """The score of each class."""
        out = self.blocks(functional.relu(self.norm(self.stem(x))))
        return self.head(out.mean((2, 3)))


class Layer(nn.Module):
    """One layer of GPT-2: attention, then a perceptron, each after a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """The features of each position, (B, T, width)."""
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.transpose(1, 3).unbind(2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 with tied embedding; the vocabulary is padded to a multiple of 64, as is usual."""

    def __init__(
        self, *, vocabulary: int, length: int, width: int, layers: int, heads: int
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                depth = (2 * layers) ** -0.5 if name.endswith(("out.weight", "down.weight")) else 1
                nn.init.normal_(parameter, std=0.02 * depth)

    def forward(self, tokens: Tensor) -> Tensor:
        """The score of each token at each position, (B, T, vocabulary)."""
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))
