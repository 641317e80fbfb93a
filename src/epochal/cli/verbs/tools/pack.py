"""``epochal pack``: writes a run into one file, here or at a URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.cli.arguments import add_run_argument
from epochal.durable.remote import hide_credentials, is_url, to_local
from epochal.experiment.config.choices import add_options
from epochal.records.archive import pack_run
from epochal.records.find import read_run
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control
from epochal.text.formatting import format_bytes

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_run_argument(parser)
    text = "a new file, a folder, or a URL such as s3://bucket/run.tar; .gz compresses"
    parser.add_argument("target", metavar="FILE|URL", help=text)
    add_options(parser, {"--no-checkpoints": "leave out checkpoints and weights"})


def execute(args: argparse.Namespace) -> int:
    """Write the archive, and print its place."""
    folder = read_run(args.run, args.runs_dir).path.resolve()
    target = args.target
    is_folder = target.endswith("/") or (not is_url(target) and to_local(target).is_dir())
    if is_folder:
        target = f"{target.rstrip('/')}/{folder.name}.tar"
    size = pack_run(folder, target, has_checkpoints=not args.no_checkpoints)
    shown = hide_credentials(target)
    print(escape_control(f"packed {folder.name}, {format_bytes(size)}, into {shown}"))
    print(escape_control(f"`{epochal_command()} unpack {shown}` unpacks it"))
    return 0
