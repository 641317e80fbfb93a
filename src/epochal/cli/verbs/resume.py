"""``epochal resume``: continues a run from its newest checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.cli.arguments import add_run_argument
from epochal.cli.trust import add_trust_options, execute_trusted
from epochal.experiment.config.choices import add_choices, add_resume_choices, read_choices
from epochal.text.interrupts import deferring_interrupts, raising_on_preemption

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_run_argument(parser)
    text = "overrides of its config, such as train.for=20ep"
    parser.add_argument("words", nargs="*", default=[], metavar="key=value", help=text)
    add_resume_choices(parser, has_run=False)
    add_choices(parser, "--device", "--gpus", "--nproc", "--epochs", "--debug", "--debug-rank")
    add_trust_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Continue the run; returns its exit code."""
    with raising_on_preemption():
        with deferring_interrupts():
            from epochal.experiment.run import resume

        choices = read_choices(args) | {"raise_errors": False, "can_fork": True}
        words, runs_dir = args.words, args.runs_dir
        result = execute_trusted(
            args,
            lambda trust: resume(
                args.run, overrides=words, runs_dir=runs_dir, trust=trust, **choices
            ),
        )
        return result.exit_code
