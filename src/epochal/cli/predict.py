"""``epochal predict``: the outputs of a finished run's weights on its predict data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from epochal.cli import test
from epochal.cli.outcome import print_outcome
from epochal.experiment.arguments import choices_of

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's words and options."""
    test.add_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where predictions go (JSON lines; default: the record)",
    )


def execute(args: argparse.Namespace) -> int:
    """Predict, and say where the predictions lie."""
    from epochal.experiment.series import run_again

    result = run_again(args.run, "predict", args.runs_dir, overrides=args.words, **choices_of(args))
    print_outcome(result)
    if result.ok:
        from epochal.experiment.predictions import write_predictions

        target = args.out or (result.dir / "predictions.jsonl" if result.dir else None)
        if target is not None:
            count = write_predictions(target, result.value)
            print(f"  wrote    {count} predictions to {target}")
    return result.exit_code
