"""``epochal predict``: writes the predictions of a run's weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.cli.verbs import test
from epochal.durable.remote import is_url
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import add_options
from epochal.text.formatting import format_count
from epochal.text.interrupts import deferring_interrupts

if TYPE_CHECKING:
    import argparse

DEFAULT_FILE = "predictions.jsonl"
_SUFFIXES = (".jsonl", ".parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    test.add_arguments(parser)
    add_options(
        parser,
        {
            "--input FILE|URL": "predict the rows of this file: .jsonl, .json, .csv, .parquet, "
            ".npz or .txt",
            "--output FILE": "write there, .jsonl or .parquet (default: in the record); "
            "the same command continues a prediction that was killed",
        },
    )
    text = "rows of --input in a batch (default: 64)"
    parser.add_argument("--batch-size", type=int, metavar="N", help=text)


def execute(args: argparse.Namespace) -> int:
    """Predict, and print where the predictions were written."""
    _require_target(args)
    with deferring_interrupts():
        from epochal.engine.prediction_file import find_partial
        from epochal.experiment.run import describe_prediction

    output = DEFAULT_FILE if args.output is None else args.output.absolute()
    changes = describe_prediction(args.input, output, args.batch_size)
    result = test.evaluate(args, "predict", changes)
    if result.ok:
        written = result.value
        shown = args.output or Path(result.dir or "") / DEFAULT_FILE
        print(f"  wrote    {format_count(written.count, 'prediction')} to {shown}")
    elif args.output is not None and find_partial(args.output).exists():
        print(f"{args.output}: the same command continues this prediction", file=sys.stderr)
    return result.exit_code


def _require_target(args: argparse.Namespace) -> None:
    """Refuse before predicting what would fail afterwards."""
    if args.output is None and args.no_file:
        hint = "name a file: --output predictions.jsonl"
        raise ConfigError(Problem("--no-file", "there is no record for predictions", hint=hint))
    if args.output is not None and args.output.suffix not in _SUFFIXES:
        what = f"cannot write this kind of file: {args.output.name!r}"
        raise ConfigError(Problem("--output", what, hint=f"end it with {' or '.join(_SUFFIXES)}"))
    if args.output is not None and not args.output.absolute().parent.is_dir():
        hint = f"create it: mkdir -p {args.output.parent}"
        what = f"there is no folder {str(args.output.parent)!r}"
        raise ConfigError(Problem("--output", what, hint=hint))
    if args.input is not None and not is_url(args.input) and not Path(args.input).is_file():
        what = f"there is no file {args.input!r}"
        hint = f"relative paths start from the current folder, {Path.cwd()}"
        raise ConfigError(Problem("--input", what, hint=hint))
