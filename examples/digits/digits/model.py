"""Two small networks for 8x8 scans: fully connected, and convolutional.

Shapes: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn


class Mlp(nn.Module):
    """A fully connected network over the 64 pixels of a scan.

    Args:
        width: Units of each hidden layer.
        depth: Number of hidden layers.
        dropout: Dropout probability of hidden units.
    """

    def __init__(self, *, width: int = 128, depth: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        sizes = [64] + [width] * depth
        hidden: list[nn.Module] = []
        for size_in, size_out in pairwise(sizes):
            hidden += [nn.Linear(size_in, size_out), nn.ReLU(), nn.Dropout(dropout)]
        self.layers = nn.Sequential(*hidden, nn.Linear(sizes[-1], 10))

    def forward(self, image: Tensor) -> Tensor:
        """Logits of the ten digits: (B, 1, 8, 8) -> (B, 10)."""
        pixels = image.flatten(start_dim=1)  # (B, 1, 8, 8) -> (B, 64)
        scores: Tensor = self.layers(pixels)  # (B, 64) -> (B, 10)
        return scores


class Conv(nn.Module):
    """A convolutional network: two blocks that halve the scan, then one linear layer.

    Args:
        channels: Channels of the first block; the second has twice as many.
        dropout: Dropout probability before the last layer.
    """

    def __init__(self, *, channels: int = 16, dropout: float = 0.1) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            _block(1, channels),  # (B, 1, 8, 8) -> (B, C, 4, 4)
            _block(channels, 2 * channels),  # (B, C, 4, 4) -> (B, 2C, 2, 2)
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(dropout), nn.Linear(8 * channels, 10))

    def forward(self, image: Tensor) -> Tensor:
        """Logits of the ten digits: (B, 1, 8, 8) -> (B, 10)."""
        scores: Tensor = self.head(self.blocks(image))
        return scores


def _block(channels_in: int, channels_out: int) -> nn.Sequential:
    """Convolution, batch norm and pooling: (B, C_in, H, W) -> (B, C_out, H/2, W/2)."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
