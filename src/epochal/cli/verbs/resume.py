"""``epochal resume``: continues a run from its newest checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.cli.arguments import add_run_argument
from epochal.experiment.config.arguments import (
    add_checkpoint_choices,
    add_device_choice,
    read_choices,
)
from epochal.text.interrupts import deferring_interrupts, raising_on_preemption

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_run_argument(parser)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="key=value",
        help="overrides of its config, such as train.for=20ep",
    )
    add_checkpoint_choices(parser)
    add_device_choice(parser)
    parser.add_argument(
        "--gpus", type=int, metavar="N", help="number of accelerators; 0 is the CPU"
    )
    parser.add_argument(
        "--epochs", type=int, metavar="N", help="train for N epochs, instead of train.for"
    )
    parser.add_argument(
        "--debug",
        action="store_true",
        help="one process, all log messages, every loss checked; pdb works",
    )


def execute(args: argparse.Namespace) -> int:
    """Continue the run; gives its exit code."""
    with raising_on_preemption():
        with deferring_interrupts():
            from epochal.experiment.run import resume

        result = resume(
            args.run, overrides=args.words, runs_dir=args.runs_dir, **read_choices(args)
        )
        return result.exit_code
