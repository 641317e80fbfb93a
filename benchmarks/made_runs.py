"""Thousands of made-up run folders with the files and sizes of real ones."""

from __future__ import annotations

import json
import os
import random
import struct
import zlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CURVES = 64
"""Number of different sets of curves; runs use them in turn."""

STEPS = 1000
PROJECTS = ("vision", "speech", "language")
MODELS = ("resnet18", "resnet50", "vit_small", "convnext_tiny")
OPTIMIZERS = ("AdamW", "SGD", "Lion")
PURPOSES = ("Does a longer warm-up help?", "Baseline.", "Ablation of mixup.", "调整学习率", "")
DEFAULTS = {
    section: [f"{section}.{name}" for name in names.split()]
    for section, names in {
        "task": "label_smoothing ignore_index topk resize crop flip mean std cache_images",
        "model": "width depth dropout drop_path norm activation bias init_std heads dtype",
        "optim": "eps amsgrad foreach fused maximize capturable differentiable accumulate clip",
        "schedule": "min_factor over unit warmup_start cooldown power",
        "train": "eval_at_start eval_at_end eval_loss limit_batches sanity_batches max_time",
        "data": "train.workers train.prefetch train.pin train.shuffle val.workers val.prefetch",
        "log": "data_time grad_norm level memory record_every console_every",
        "engine": "deterministic num_threads step amp compile tf32 channels_last",
        "checkpoint": "every keep keep_best keep_every background verify weights_only",
        "record": "exact log_dir log_file subdirs",
    }.items()
}
PACKAGES = {f"package-{i}": f"{i % 7}.{i % 11}.{i % 5}" for i in range(60)}
SERIES = ("lr", "train/loss", "train/acc", "train/epoch/loss", "train/epoch/acc", "val/loss")


def make_runs(root: Path, count: int, *, seed: int = 0, columns: int = 0) -> None:
    """Write ``count`` run folders below ``root``; each has at least ``columns`` settings."""
    draw = random.Random(seed)
    curves = [_curves(draw) for _ in range(CURVES)]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for i in range(count):
        begin = start + timedelta(seconds=600 * i)
        _make_run(root, draw, begin, curves[i % CURVES], number=i, columns=columns)


def _make_run(
    root: Path,
    draw: random.Random,
    begin: datetime,
    curves: tuple[bytes, float],
    *,
    number: int,
    columns: int,
) -> None:
    points, best = curves
    chosen = {
        "project": draw.choice(PROJECTS),
        "tag": f"study-{number // 250}",
        "seed": draw.randrange(5),
        "model.type": f"models.{draw.choice(MODELS)}",
        "optim.type": draw.choice(OPTIMIZERS),
        "optim.lr": round(10 ** draw.uniform(-5, -1), 7),
        "optim.weight_decay": draw.choice((0.0, 0.01, 0.05)),
        "task.batch_size": draw.choice((32, 64, 128, 256)),
        "train.for": "90ep",
        "schedule.type": "cosine",
    }
    known = len(chosen) + sum(map(len, DEFAULTS.values())) + 2
    chosen |= {f"model.stage{i}.width": draw.randrange(8, 512, 8) for i in range(columns - known)}
    folder = (
        root / chosen["project"] / chosen["tag"] / f"{begin:%Y%m%d-%H%M%S}-{number % 65536:04x}"
    )
    for name in ("config/written", "logs", "media", "checkpoints"):
        os.makedirs(folder / name)  # noqa: PTH103 - fast, as there are many
    end = begin + timedelta(seconds=540)
    status = draw.choices(("finished", "failed", "stopped", "interrupted"), (85, 8, 5, 2))[0]
    for name, text in _texts(chosen, draw, begin, end, status, best).items():
        (folder / name).write_text(text, "utf-8")
    (folder / "metrics.bin").write_bytes(points)


def _texts(
    chosen: dict[str, Any],
    draw: random.Random,
    begin: datetime,
    end: datetime,
    status: str,
    best: float,
) -> dict[str, str]:
    times = {"started": begin.isoformat(), "ended": end.isoformat(), "updated": end.isoformat()}
    purpose = draw.choice(PURPOSES)
    machine = {"hostname": "node-1", "cores": 64, "packages": PACKAGES}
    metrics = dict.fromkeys(SERIES, best)
    expanded = "".join(f"# {key}\n" for key in chosen)
    return {
        "README.md": f"# {chosen['tag']}\n\n{purpose}\n\n---\n\n`metrics.bin` holds all points\n",
        "run.json": _json(
            {
                "format": 1,
                "created": begin.isoformat(),
                "command": "epochal run train.yaml",
                "machine": machine,
                **{name: chosen[name] for name in ("project", "tag", "seed")},
                "desc": purpose,
                "runner": "train",
                "monitor": "val/loss",
                "attempts": [{"attempt": 0, "code": {f"a/m{i}.py": f"{i:016x}" for i in range(9)}}],
            }
        ),
        "status.json": _json(
            {"status": status, "step": STEPS, "epoch": 90, "host": "node-1", "attempt": 0, **times}
        ),
        "result.json": _json({"attempt": 0, "status": status, "metrics": metrics, "best": best}),
        "config/provenance.json": _json(dict(_provenance(chosen))),
        "config/expanded.yaml": expanded,
        "config/observed.json": "{}",
        "config/written/train.yaml": expanded,
        "series.jsonl": "".join(f'{{"id":{i},"name":"{name}"}}\n' for i, name in enumerate(SERIES)),
        "events.jsonl": "",
        "logs/run.log": "a line of the log\n" * 200,
    }


def _provenance(chosen: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for key, value in chosen.items():
        where = {"source": "configs/train.yaml", "line": 3, "column": 7, "layer": "file"}
        yield key, [{"value": value, **where}]
    for i, key in enumerate(key for keys in DEFAULTS.values() for key in keys):
        value: object = (0.1, 1, True, None, "auto")[i % 5]
        where = {"source": "models.Model", "line": 0, "column": 0, "layer": "default"}
        yield key, [{"value": value, **where}]
    for i, value in enumerate((0.9, 0.999)):
        where = {"source": "torch.optim.AdamW", "line": 0, "column": 0, "layer": "default"}
        yield f"optim.betas.{i}", [{"value": value, **where}]


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _curves(draw: random.Random) -> tuple[bytes, float]:
    """Six series that fall, as rows of ``metrics.bin``, and the lowest value."""
    rows, low = [], 1.0
    for step in range(0, STEPS, 5):
        for series in range(len(SERIES)):
            value = 2.0 * 0.995**step + draw.uniform(0, 0.1)
            low = min(low, value)
            head = struct.pack("<IIqdd", series, 0, step, 1.7e9 + step, value)
            rows.append(head + struct.pack("<I", zlib.crc32(head)))
    return b"".join(rows), low
