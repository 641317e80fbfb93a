"""``epochal stop``: asks a run or a sweep to save and end."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal import durable
from epochal.cli.arguments import RUN_HELP, add_runs_dir_option, find_sweep_word
from epochal.errors import RecordError
from epochal.experiment.config.choices import add_options
from epochal.records.find import read_run
from epochal.records.layout.lease import BEAT_SECONDS, LEASE_FILE, is_owner_alive
from epochal.records.layout.process import is_on_this_machine, shares_process_ids
from epochal.records.layout.stop_request import STOP_REQUESTED, write_stop_request
from epochal.text.command import epochal_command

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from epochal.sweep.sweep_folder import SweepFolder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    text = f"{RUN_HELP}; or a sweep, such as sweeps/last"
    parser.add_argument("words", nargs="+", metavar="RUN|SWEEP", help=text)
    add_options(parser, {"--reason TEXT": "the reason, which is recorded"})
    add_runs_dir_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Ask every named run and sweep, in order."""
    reason = f"{STOP_REQUESTED}: {args.reason}" if args.reason else STOP_REQUESTED
    for word in args.words:
        sweep = find_sweep_word(word, args.runs_dir)
        if sweep is not None:
            print(_stop_sweep(sweep, reason))
        else:
            print(_stop_run(read_run(word, args.runs_dir).path, reason))
    return 0


def _stop_run(folder: Path, reason: str) -> str:
    owner = durable.find_object(folder / LEASE_FILE)
    if not is_owner_alive(folder, owner):
        raise RecordError(f"{folder.name}: is not running\n  nothing to stop")
    write_stop_request(folder, reason)
    if is_on_this_machine(owner) and shares_process_ids(owner):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(owner["pid"], signal.SIGTERM)
        when = "after its current step"
    else:
        when = f"within {BEAT_SECONDS:.0f} s, on {owner.get('host')}"
    resume = f"`{epochal_command()} resume {folder.name}` continues it"
    return f"{folder.name} saves and ends {when}; {resume}"


def _stop_sweep(folder: SweepFolder, reason: str) -> str:
    if not folder.is_locked():
        raise RecordError(f"{folder.id}: no process runs this sweep\n  nothing to stop")
    write_stop_request(folder.path, reason)
    resume = f"`{epochal_command()} sweep {folder.id}` continues it"
    return f"{folder.id} starts no more trials, and those that run save and end; {resume}"
