"""Records for the browser tests: plain runs, seeds, a failure, media, hostile texts."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np

from comparing import keep_code, make_run
from epochal.records.folder.folder import RunFolder
from epochal.records.folder.media import save_media
from epochal.records.folder.writer import RunWriter
from epochal.records.mail.mailbox import Mail, Mailbox
from epochal.records.project.result_tables import ResultTables
from epochal.records.project.table_content import MetricCell, TableContent, TextCell

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.folder.reader import RunRecord

BASE = "20261114-100000-base"
WIDE = "20261114-140000-wide"
FAILED = "20261114-150000-fail"
SEEDS = tuple(f"20261114-1{hour}0000-see{hour}" for hour in range(1, 4))
TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 12, in loss
    return self.criterion(logits, target)
RuntimeError: shape mismatch: logits have 10 classes, targets go up to 11
"""
README = """# baseline

Does a *wider* model help? **No**, see `model.py`.

- width 128: 0.97
- width 512: 0.97

| width | val/acc |
| --- | --- |
| 128 | 0.971 |
| 512 | 0.969 |

[paper](https://example.org/paper)
"""


def generate_runs(root: Path) -> None:
    """Write six runs, two mails and a table."""
    base = _make(root, BASE, hour=10, tag="baseline", lr=0.01, width=128, readme=README)
    wide = _make(root, WIDE, hour=14, tag="wide", lr=0.003, width=512)
    for seed, run in enumerate(SEEDS, start=1):
        _make(root, run, hour=10 + seed, tag="seeds", lr=0.03, width=128, seed=seed)
    failed = _make(root, FAILED, hour=15, tag="augmented", lr=0.01, width=128, status="failed")
    result = json.loads((failed.path / "result.json").read_text())
    what = TRACEBACK.rstrip().rpartition(": logits")[0].rpartition("\n")[2].partition(": ")
    result |= {"exception_type": what[0], "message": what[2], "traceback": TRACEBACK}
    (failed.path / "result.json").write_text(json.dumps(result))
    keep_code(
        base, {"model.py": b"WIDTH = 128\n\n\nclass Mlp:\n    depth = 2\n", "task.py": b"pass\n"}
    )
    keep_code(
        wide, {"model.py": b"WIDTH = 512\n\n\nclass Mlp:\n    depth = 2\n", "task.py": b"pass\n"}
    )
    _add_media(base)
    rows = (
        (TextCell("baseline"), MetricCell(BASE, "val/acc")),
        (TextCell("prior work"), TextCell("0.94")),
    )
    ResultTables(root).create("results", TableContent(columns=("method", "acc"), rows=rows))
    box = Mailbox(root)
    box.post(_mail("1", "finished", "baseline finished after 12 min: val/acc 0.97", base))
    box.post(_mail("2", "failed", "augmented failed: RuntimeError: shape mismatch", failed))


def _make(
    root: Path,
    run: str,
    *,
    hour: int,
    tag: str,
    lr: float,
    width: int,
    seed: int = 0,
    status: str = "finished",
    readme: str = "",
) -> RunRecord:
    random = np.random.default_rng(hour)
    steps = range(0, 1000, 2)
    loss = {step: math.exp(-step / 200) + 0.1 + random.normal(0, 0.02) for step in steps}
    acc = {
        step: 0.97 - 0.6 * math.exp(-step / 150) + random.normal(0, 0.004) for step in steps[::25]
    }
    points = {
        "train/loss": loss,
        "train/lr": {step: lr * (1 - step / 1000) for step in steps},
        "val/acc": acc,
        "val/loss": {step: 1.1 - value for step, value in acc.items()},
        "grad_norm": {step: abs(random.normal(1, 0.3)) + 20 * (step == 500) for step in steps},
    }
    best = max(acc.values())
    record = make_run(
        root / "shop" / tag / run,
        {"tag": tag, "seed": seed, "optim.lr": lr, "optim.type": "AdamW", "model.width": width},
        points=points,
        status=status,
        metrics={"val/acc": best},
        best=best,
        format=1,
        id=run,
        project="shop",
        tag=tag,
        command="epochal run shop.yaml",
        device="cpu",
        created=f"2026-11-14T{hour}:00:00+00:00",
    )
    (record.path / "config" / "observed.json").write_text("{}")
    (record.path / "README.md").write_text(readme or f"# {tag}\n")
    (record.path / "logs").mkdir()
    lines = (f"epoch {i:3} train/loss {math.exp(-i / 20) + 0.1:.4f} of {run}\n" for i in range(400))
    (record.path / "logs" / "run.log").write_text("".join(lines))
    times = {"steps": 540.0, "data wait": 120.0, "evaluation": 44.0, "start-up/imports": 6.0}
    result = json.loads((record.path / "result.json").read_text())
    (record.path / "result.json").write_text(
        json.dumps(result | {"times": times, "seconds": 710.0})
    )
    samples = (
        {
            "time": 1e9 + 10 * i,
            "step": i,
            "system/cpu": 40 + 20 * math.sin(i / 9),
            "system/memory": 31.0,
        }
        for i in range(120)
    )
    (record.path / "system.jsonl").write_text("".join(json.dumps(one) + "\n" for one in samples))
    return record


def _add_media(record: RunRecord) -> None:
    writer = RunWriter(RunFolder(record.path))
    for step in (0, 500, 998):
        wave = np.sin(np.linspace(0, 3 + step / 100, 64))
        image = ((np.outer(wave, wave) + 1) * 127).astype(np.uint8)
        save_media(writer, "samples/grid", image, step=step)
    save_media(writer, "samples/text", "the quick brown fox", step=500, kind="text")
    writer.close()


def _mail(name: str, kind: str, subject: str, record: RunRecord) -> Mail:
    return Mail(
        id=f"mail{name}",
        kind=kind,  # type: ignore[arg-type]
        subject=subject,
        text=f"{subject}\n\nbest val/acc 0.97 at step 950\n",
        time=f"2026-11-14T16:0{name}:00+00:00",
        run=f"shop/{record.path.parent.name}/{record.path.name}",
    )
