"""``epochal evaluate``: evaluates the checkpoints of a run, also while it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.cli.arguments import add_run_argument
from epochal.cli.trust import add_trust_options, execute_trusted
from epochal.experiment.config.choices import add_choices, read_choices
from epochal.text.interrupts import deferring_interrupts

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_run_argument(parser)
    how = parser.add_mutually_exclusive_group()
    text = "wait for new checkpoints until the run ends"
    how.add_argument("--watch", action="store_true", help=text)
    text = "evaluate the checkpoints that exist, and end (default)"
    how.add_argument("--once", action="store_true", help=text)
    text = "the split to evaluate (default: val)"
    parser.add_argument("--split", default="val", metavar="SPLIT", help=text)
    text = "overrides of its config"
    parser.add_argument("words", nargs="*", default=[], metavar="key=value", help=text)
    add_choices(parser, "--device", "--desc", "--debug", "--no-file")
    add_trust_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Evaluate, as a separate run."""
    with deferring_interrupts():
        from epochal.experiment.run import evaluate_checkpoints

    choices = read_choices(args)
    result = execute_trusted(
        args,
        lambda trust: evaluate_checkpoints(
            args.run,
            args.runs_dir,
            split=args.split,
            is_watching=args.watch,
            overrides=args.words,
            trust=trust,
            **choices,
        ),
    )
    return result.exit_code
