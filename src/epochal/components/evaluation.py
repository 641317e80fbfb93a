"""Evaluation stages: keep the outputs of the best model, show examples as a page."""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor
from typing_extensions import override

from epochal import durable
from epochal.components.outputs import OUTPUTS_DIR
from epochal.engine.interfaces.output_stage import EvaluationStage
from epochal.engine.output_pipes import fail
from epochal.engine.samples import to_plain
from epochal.records.folder import redacted
from epochal.records.folder.media import encode_png, to_pixels

if TYPE_CHECKING:
    from epochal.engine.interfaces.output_stage import Samples
    from epochal.engine.interfaces.run import Run

BEST_FILE = "best.json"
_STYLE = (
    "body{font:14px system-ui;margin:2em}table{border-collapse:collapse}"
    "td,th{border:1px solid #ccc;padding:4px 8px;text-align:left;vertical-align:top}"
    "img{image-rendering:pixelated;min-width:64px;max-width:256px}"
)


@final
class KeepBest(EvaluationStage):
    """Keeps the output files of the best evaluation by the monitor, and its metrics.

    The files of the split, such as ``outputs/val.jsonl``, are kept as ``outputs/best-val.jsonl``,
    also those with a step in their names; ``outputs/best.json`` has step, epoch and metrics.
    """

    on = ("val",)

    @override
    def evaluate(self, metrics: dict[str, float], run: Run, split: str) -> None:
        monitor = run.monitor
        prefix = "/".join(filter(None, (split, run.loader_name))) + "/"
        value = metrics.get(monitor.metric.removeprefix(prefix)) if monitor is not None else None
        if monitor is None or value is None or run.dir is None or not monitor.is_better(value):
            return
        folder = run.dir / OUTPUTS_DIR
        folder.mkdir(exist_ok=True)
        name = "-".join(filter(None, (split, run.loader_name)))
        for path in sorted(folder.iterdir()):
            if path.stem not in (name, f"{name}-{run.step:06}"):
                continue
            kept = folder / f"best-{name}{path.suffix}"
            if kept.exists():
                durable.remove_file(kept)
            durable.link_or_copy(path, kept)
        facts = {"step": run.step, "epoch": run.epoch_number, "monitor": monitor.metric}
        redacted.write_json(folder / BEST_FILE, facts | {"value": value, "metrics": metrics})


@final
class SaveExamples(EvaluationStage):
    """Saves a page of examples with their inputs and outputs as media of the run.

    Args:
        columns: The columns to show; all by default.
        limit: Most examples.
        sort_by: Show the examples with the largest values of this column first.
        smallest: Show those with the smallest values first instead.
    """

    def __init__(
        self,
        *,
        columns: list[str] | None = None,
        limit: int = 20,
        sort_by: str | None = None,
        smallest: bool = False,
    ) -> None:
        self._columns, self._limit = columns, limit
        self._sort_by, self._smallest = sort_by, smallest

    @override
    def evaluate(self, samples: Samples, run: Run, split: str) -> None:
        wanted = [*(self._columns or samples), *([self._sort_by] if self._sort_by else [])]
        for name in wanted:
            if name not in samples:
                fail(self, f"there is no column {name!r}", f"there are: {', '.join(samples)}")
        order = list(range(len(next(iter(samples.values()), []))))
        if self._sort_by is not None:
            values = [float(one) for one in samples[self._sort_by]]
            order = sorted(order, key=values.__getitem__, reverse=not self._smallest)
        columns = self._columns or list(samples)
        rows = [[samples[name][index] for name in columns] for index in order[: self._limit]]
        title = "/".join(filter(None, (split, run.loader_name, "examples")))
        page = to_page(f"{title}, step {run.step}", columns, rows)
        run.save_media(title, page, kind="text", suffix="html")


def to_page(title: str, columns: list[str], rows: list[list[Any]]) -> str:
    """A page with a table; images are inside it."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{_to_cell(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    return (
        f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<style>{_STYLE}</style><h1>{html.escape(title)}</h1>\n"
        f"<table><tr>{head}</tr>\n{body}</table>\n"
    )


def _to_cell(value: object) -> str:
    if isinstance(value, Tensor) and _is_image(value):
        png = encode_png(to_pixels("examples", value.numpy()))
        return f'<img src="data:image/png;base64,{base64.b64encode(png).decode()}">'
    plain = to_plain(value)
    if isinstance(plain, float):
        return f"{plain:.6g}"
    if isinstance(plain, list) and all(isinstance(one, float) for one in plain):
        return html.escape(", ".join(f"{one:.4g}" for one in plain[:32]))
    if isinstance(plain, list) and all(isinstance(one, str) for one in plain):
        plain = ", ".join(plain)
    return html.escape(str(plain)[:2000])


def _is_image(value: Tensor) -> bool:
    is_shaped = value.dim() == 2 or (value.dim() == 3 and value.shape[0] in (1, 3, 4))
    return is_shaped and value.dtype != torch.int64 and min(value.shape[-2:]) >= 4
