"""``epochal run``: train what configs describe, one after the other, and keep records."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from epochal.cli.outcome import print_outcome
from epochal.cli.words import split_words
from epochal.experiment.arguments import add_choices, choices_of

if TYPE_CHECKING:
    import argparse

    from epochal.engine import RunResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's words and options."""
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE|key=value",
        help="config files (YAML, TOML, JSON) and changes to them, such as optim.lr=1e-3",
    )
    add_choices(parser)


def execute(args: argparse.Namespace) -> int:
    """Run every file; gives the exit code of the first run that failed."""
    files, overrides = split_words(args.words)
    from epochal.experiment.series import run_series

    results: list[RunResult] = []
    for result in run_series(files, overrides=overrides, **choices_of(args)):
        print_outcome(result)
        results.append(result)
    if len(results) > 1:
        failed = sum(not result.ok for result in results)
        print(f"{len(results)} runs, {failed} failed", file=sys.stderr if failed else sys.stdout)
    return next((result.exit_code for result in results if result.exit_code), 0)
