"""Runs a frozen job; pools call ``epochal run-job``, users do not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from epochal.experiment.config.choices import Choices, add_options, read_choices
from epochal.text.interrupts import deferring_interrupts, raising_on_preemption

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    parser.add_argument("job", type=Path, metavar="FILE", help="file of a frozen job")
    texts = {
        "--device D": "device",
        "--nproc N": "number of processes on this machine",
        "--nnodes N|MIN:MAX": "number of machines",
        "--rdzv-endpoint HOST:PORT": "where the machines connect",
        "--resume DIR": "folder of the run to continue",
        "--plan": "only build it, and print what it needs as JSON",
    }
    add_options(parser, texts)


def execute(args: argparse.Namespace) -> int:
    """Run the job with the config and the code that it was submitted with."""
    if args.plan:
        return _print_needs(args)
    with raising_on_preemption():
        with deferring_interrupts():
            from epochal.experiment.run import run_job

        given = {name: value for name, value in read_choices(args).items() if value is not None}
        given.pop("resume", None)  # the job may name another one
        placed = cast("Choices", {**given, "can_fork": True})
        return run_job(args.job, placed, resume=args.resume).exit_code


def _print_needs(args: argparse.Namespace) -> int:
    from epochal.cli.arguments import print_json
    from epochal.errors import ConfigError
    from epochal.experiment.tools.plan_run import plan_job

    try:
        plan = plan_job(args.job, device=args.device)
    except ConfigError as error:
        problems = error.problems
        print_json({"problems": [[one.key, one.what, one.hint] for one in problems]})
        return ConfigError.exit_code
    found = [[one.key, one.what, one.hint] for one in plan.problems]
    needs = {"parameters": plan.parameters, "memory_bytes": plan.memory_bytes}
    print_json(needs | {"problems": found})
    return 0
