"""The training text: the sources of the Python standard library of this machine."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset


def read_library(*, max_bytes: int) -> Tensor:
    """The first ``max_bytes`` of the library's sources as numbers 0 to 255, shape (N,).

    Files are read in the order of their names, so the same Python always gives the same text.
    """
    content = bytearray()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        if len(content) >= max_bytes:
            break
        content += path.read_bytes()
    return torch.frombuffer(content[:max_bytes], dtype=torch.uint8).clone()


class Windows(Dataset[dict[str, Tensor]]):
    """Consecutive windows of a text; the targets are the tokens shifted by one character.

    Args:
        text: Character numbers, shape (N,).
        context: Length T of a window.
    """

    def __init__(self, text: Tensor, *, context: int) -> None:
        self.text = text
        self.context = context

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.context

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = index * self.context
        window = self.text[start : start + self.context + 1].long()  # (T + 1,)
        return {"tokens": window[:-1], "targets": window[1:]}  # (T,) each
