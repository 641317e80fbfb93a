"""``epochal unpack``: adds a run that ``epochal pack`` wrote to the local runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.cli.arguments import add_runs_dir_option
from epochal.records.archive import unpack_run
from epochal.registry.project_file import get_runs_dir
from epochal.text.escape import escape_control

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    text = "a file that `epochal pack` or a download of the web page wrote, or its URL"
    parser.add_argument("source", metavar="FILE|URL", help=text)
    add_runs_dir_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Write the run folder, and print its path."""
    folder = unpack_run(args.source, get_runs_dir(args.runs_dir))
    print(escape_control(f"unpacked {folder}"))
    return 0
