"""``epochal predict``: writes the predictions of a run's weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from epochal.cli.verbs import test
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.arguments import read_choices
from epochal.text.formatting import format_count
from epochal.text.interrupts import deferring_interrupts

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    test.add_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="file for the predictions, as JSON lines (default: in the record)",
    )


def execute(args: argparse.Namespace) -> int:
    """Predict, and print where the predictions were written."""
    _require_target(args)
    with deferring_interrupts():
        from epochal.experiment.run import evaluate_run

    result = evaluate_run(
        args.run,
        "predict",
        args.runs_dir,
        overrides=args.words,
        **read_choices(args),
    )
    if result.ok:
        from epochal.experiment.tools.predictions import write_predictions

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
