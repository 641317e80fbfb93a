"""A model that would end the process if a check imported it."""

from torch import nn


class Mlp(nn.Module):
    """Two layers.

    Args:
        classes: How many kinds of shapes there are.
        width: Units of the hidden layer.
    """

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LazyLinear(width), nn.LazyLinear(classes))


raise SystemExit("a check never imports the user's code")
