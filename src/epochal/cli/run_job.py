"""Runs a frozen job: pools call ``epochal run-job``, users need not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from epochal.experiment.config.choices import add_options
from epochal.text.interrupts import deferring_interrupts, raising_on_preemption

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    parser.add_argument("job", type=Path, metavar="FILE", help="file of a frozen job")
    add_options(parser, {"--device D": "device", "--resume DIR": "folder of the run to continue"})


def execute(args: argparse.Namespace) -> int:
    """Run the job with the config and the code that it was submitted with."""
    with raising_on_preemption():
        with deferring_interrupts():
            from epochal.experiment.run import run_job

        return run_job(args.job, device=args.device, resume=args.resume, begun=args.begun).exit_code
