"""``epochal resume``: go on with a run where its newest checkpoint left it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.cli.arguments import add_run_argument
from epochal.cli.pages.result import print_result
from epochal.experiment.config.arguments import (
    add_checkpoint_choices,
    add_device_choice,
    read_choices,
)
from epochal.text.interrupts import deferring_interrupts, raising_on_preemption

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's words and options."""
    add_run_argument(parser)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="key=value",
        help="changes to its config, such as train.for=20ep",
    )
    add_checkpoint_choices(parser)
    add_device_choice(parser)
    parser.add_argument("--gpus", type=int, metavar="N", help="how many accelerators; 0: CPU")
    parser.add_argument("--epochs", type=int, metavar="N", help="instead of train.for")
    parser.add_argument(
        "--debug",
        action="store_true",
        help="one process, all log lines, each loss by itself, pdb works",
    )


def execute(args: argparse.Namespace) -> int:
    """Go on, and say how it ended."""
    with raising_on_preemption():
        with deferring_interrupts():
            from epochal.experiment.run import resume

        result = resume(
            args.run, overrides=args.words, runs_dir=args.runs_dir, **read_choices(args)
        )
        print_result(result)
        return result.exit_code
