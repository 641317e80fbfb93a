"""Draws what probes found: distributions, attention maps and frames as images, rows as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

_BINS, _BAR, _HEIGHT = 64, 4, 96  # of a histogram, in pixels


def read_figures(values: Tensor) -> dict[str, float]:
    """Mean, standard deviation, extremes and the share of numbers that are not finite."""
    flat = values.detach().reshape(-1).double().cpu()
    finite = flat[flat.isfinite()]
    if not len(finite):
        return {"nonfinite": 1.0 if len(flat) else 0.0}
    return {
        "mean": float(finite.mean()),
        "std": float(finite.std(correction=0)),
        "min": float(finite.min()),
        "max": float(finite.max()),
        "nonfinite": 1 - len(finite) / len(flat),
    }


def draw_histogram(values: Tensor) -> np.ndarray[Any, Any]:
    """Bars of how often values occur, from the smallest to the largest."""
    flat = values.detach().reshape(-1).float().cpu()
    flat = flat[flat.isfinite()]
    pixels = np.full((_HEIGHT, _BINS * _BAR), 255, np.uint8)
    if not len(flat):
        return pixels
    counts = torch.histc(flat, bins=_BINS).numpy()
    for place, height in enumerate(np.ceil(counts / counts.max() * _HEIGHT).astype(int)):
        pixels[_HEIGHT - height :, place * _BAR : (place + 1) * _BAR - 1] = 80
    return pixels


def draw_attention(weights: Tensor) -> np.ndarray[Any, Any]:
    """Maps of (..., queries, keys) side by side, each from its smallest to its largest weight."""
    maps = weights.detach().float().cpu().reshape(-1, *weights.shape[-2:])[:16]
    low = maps.amin(dim=(1, 2), keepdim=True)
    scale = (maps.amax(dim=(1, 2), keepdim=True) - low).clamp(min=1e-12)
    return _side_by_side(((maps - low) / scale).unsqueeze(1))


def draw_frames(frames: Tensor) -> np.ndarray[Any, Any]:
    """Frames (time, channels, height, width) side by side, at most 16 of them."""
    frames = frames.detach().float().cpu()
    frames = frames.unsqueeze(1) if frames.dim() == 3 else frames
    chosen = torch.linspace(0, len(frames) - 1, min(len(frames), 16)).round().long()
    return _side_by_side(frames[chosen])


def write_table(rows: object) -> str:
    """Rows as CSV: a mapping of columns, a list of mappings, or a list of lists."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if isinstance(rows, Mapping):
        columns = [list(_plain(column)) for column in rows.values()]
        writer.writerow(rows)
        writer.writerows(zip(*columns, strict=False))
    elif isinstance(rows, Sequence) and rows and isinstance(rows[0], Mapping):
        writer.writerow(rows[0])
        writer.writerows([_plain(row.get(name)) for name in rows[0]] for row in rows)
    else:
        writer.writerows(_plain(rows))
    return text.getvalue()


def _plain(value: Any) -> Any:  # noqa: ANN401 - a cell or a column
    return value.tolist() if hasattr(value, "tolist") else value


def _side_by_side(images: Tensor) -> np.ndarray[Any, Any]:
    """Images (count, channels, height, width) from 0 to 1 in one row, with gaps."""
    gap = torch.ones(*images.shape[1:3], 2)
    parts = [part for image in images for part in (image, gap)][:-1]
    joined: np.ndarray[Any, Any] = torch.cat(parts, dim=-1).movedim(0, -1).numpy()
    return joined
