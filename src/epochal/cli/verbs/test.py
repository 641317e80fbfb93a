"""``epochal test``: evaluates the weights of a run on its test data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.cli.arguments import add_run_argument
from epochal.experiment.config.arguments import add_device_choice, read_choices
from epochal.text.interrupts import deferring_interrupts

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_run_argument(parser)
    parser.add_argument("words", nargs="*", metavar="key=value", help="overrides of its config")
    add_device_choice(parser)
    parser.add_argument(
        "--desc", metavar="TEXT", help="description, written to the README of the record"
    )
    parser.add_argument("--debug", action="store_true", help="one process, all log messages")
    parser.add_argument("--fast", action="store_true", help="use only three batches of each split")
    parser.add_argument("--no-file", action="store_true", help="write no record")


def execute(args: argparse.Namespace) -> int:
    """Evaluate; gives the exit code."""
    with deferring_interrupts():
        from epochal.experiment.run import evaluate_run

    result = evaluate_run(
        args.run,
        "test",
        args.runs_dir,
        overrides=args.words,
        **read_choices(args),
    )
    return result.exit_code
