"""``epochal test``: evaluates the weights of a run on its test data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.cli.arguments import add_run_argument
from epochal.cli.trust import add_trust_options, execute_trusted
from epochal.experiment.config.choices import add_choices, read_choices
from epochal.text.interrupts import deferring_interrupts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from epochal.engine import RunResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_run_argument(parser)
    text = (
        "weights: best (default with a monitor), last, final (default without), a step, or a file"
    )
    parser.add_argument("--from", dest="weights", metavar="WEIGHTS", help=text)
    text = "overrides of its config"
    parser.add_argument("words", nargs="*", default=[], metavar="key=value", help=text)
    add_choices(
        parser, "--device", "--nproc", "--desc", "--debug", "--debug-rank", "--fast", "--no-file"
    )
    add_trust_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Evaluate the test data."""
    return evaluate(args, "test").exit_code


def evaluate(
    args: argparse.Namespace, runner: str, changes: Mapping[str, object] | None = None
) -> RunResult:
    """Evaluate with a runner, after changes to the config."""
    with deferring_interrupts():
        from epochal.experiment.run import evaluate_run

    choices = read_choices(args) | {"can_fork": True}
    return execute_trusted(
        args,
        lambda trust: evaluate_run(
            args.run,
            runner,
            args.runs_dir,
            weights=args.weights,
            overrides=args.words,
            trust=trust,
            changes=changes,
            **choices,
        ),
    )
