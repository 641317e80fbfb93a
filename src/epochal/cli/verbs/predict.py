"""``epochal predict``: writes the predictions of a run's weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from epochal import durable
from epochal.cli.verbs import test
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import add_options
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    test.add_arguments(parser)
    text = "file for the predictions, as JSON lines (default: in the record)"
    add_options(parser, {"--out FILE": text})


def execute(args: argparse.Namespace) -> int:
    """Predict, and print where the predictions were written."""
    _require_target(args)
    result = test.evaluate(args, "predict")
    if result.ok:
        target = args.out or Path(result.dir or "") / "predictions.jsonl"
        count = write_predictions(target, result.value)
        print(f"  wrote    {format_count(count, 'prediction')} to {target}")
    return result.exit_code


def _require_target(args: argparse.Namespace) -> None:
    """Refuse before predicting what would fail afterwards."""
    if args.out is None and args.no_file:
        hint = "name a file: --out predictions.jsonl"
        raise ConfigError(Problem("--no-file", "there is no record for predictions", hint=hint))
    if args.out is not None and not args.out.absolute().parent.is_dir():
        hint = f"create it: mkdir -p {args.out.parent}"
        raise ConfigError(
            Problem("--out", f"there is no folder {str(args.out.parent)!r}", hint=hint)
        )


def write_predictions(path: Path, value: object) -> int:
    """Write the value of a ``predict`` run; returns the number of lines.

    Outputs of a batch are split by samples if all their lists and tensors have the same length;
    a single number of a batch is repeated.
    """
    lines = [durable.encode_json(line) + b"\n" for line in _lines(value)]
    durable.write_bytes(path, b"".join(lines))
    return len(lines)


def _lines(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):  # outputs of several loaders, by name
        for name, batches in value.items():
            for line in _lines(batches):
                yield {"loader": name, **line} if isinstance(line, dict) else [name, line]
        return
    for batch in value if isinstance(value, Sequence) else (value,):
        yield from _samples(_to_plain(batch))


def _samples(batch: object) -> Iterator[object]:
    if isinstance(batch, dict):
        columns = {name: value for name, value in batch.items() if isinstance(value, list)}
        if len({len(column) for column in columns.values()}) == 1:
            shared = {name: value for name, value in batch.items() if name not in columns}
            for row in zip(*columns.values(), strict=True):
                yield shared | dict(zip(columns, row, strict=True))
            return
    if isinstance(batch, list):
        yield from batch
    else:
        yield batch


def _to_plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _to_plain(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(child) for child in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
