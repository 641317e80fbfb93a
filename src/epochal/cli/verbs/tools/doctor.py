"""``epochal doctor``: checks whether runs are safe on this machine and in this folder."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.cli.arguments import add_json_option, print_json
from epochal.cli.draw.progress import Progress
from epochal.doctor.crash_tests import KILLS, check_full_disk, check_kills
from epochal.doctor.diagnostic import Diagnostic
from epochal.doctor.host import check_devices, check_host
from epochal.doctor.storage import check_storage
from epochal.errors import RecordError
from epochal.experiment.config.choices import add_options
from epochal.registry.project_file import get_runs_dir
from epochal.text.terminal import print_wrapped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    text = "folder for runs (default: runs_dir of the project, or runs)"
    parser.add_argument("dir", nargs="?", type=Path, metavar="DIR", help=text)
    texts = {"--kills N": f"number of saves to interrupt (default: {KILLS})"}
    add_options(parser, texts, kills=KILLS)
    add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Print each finding as soon as it is known; returns 1 if one of them failed."""
    findings: list[Diagnostic] = []
    with _scratch(get_runs_dir(args.dir)) as (folder, scratch):
        if not args.json:
            print_wrapped([f"checking {folder} and this machine; this takes less than a minute"])
        for finding in _run_checks(scratch, args.kills):
            findings.append(finding)
            if not args.json:
                print_wrapped([_format(finding)])
                sys.stdout.flush()
    has_failed = any(finding.level == "fail" for finding in findings)
    if args.json:
        print_json([finding.to_json() for finding in findings])
    else:
        _print_verdict(findings)
    return int(has_failed)


def _run_checks(scratch: Path, kills: int) -> Iterator[Diagnostic]:
    yield from check_host()
    yield from check_storage(scratch)
    with Progress() as progress:
        finding = _check_safely(
            "kill",
            lambda: check_kills(
                scratch,
                kills=kills,
                tell=lambda done, of: progress(f"killing processes that save: {done}/{of}"),
            ),
        )
    yield finding
    yield _check_safely("full disk", lambda: check_full_disk(scratch))
    yield from check_devices()


def _check_safely(name: str, check: Callable[[], Diagnostic]) -> Diagnostic:
    try:
        return check()
    except OSError as error:
        hint = "check the permissions and the free space of the folder"
        return Diagnostic(name, "fail", f"the check could not run: {error}", hint)


def _format(finding: Diagnostic) -> str:
    line = f"{_MARKS[finding.level]}  {finding.name:<13}  {finding.what}"
    return f"{line}\n{'':21}{finding.hint}" if finding.hint else line


def _print_verdict(findings: list[Diagnostic]) -> None:
    counts = {level: sum(one.level == level for one in findings) for level in _MARKS}
    if counts["fail"]:
        print(f"\n{counts['fail']} of {len(findings)} failed: fix this before you store runs here")
    elif counts["warn"]:
        print(f"\nruns are safe here; {counts['warn']} of {len(findings)} could be improved")
    else:
        print("\nruns are safe here")


@contextmanager
def _scratch(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The nearest existing folder, and a temporary folder inside it."""
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    scratch = there / f".epochal-doctor-{os.getpid()}"
    try:
        scratch.mkdir()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RecordError(
            f"{there}: cannot write there: {reason}\n  name another folder"
        ) from error
    try:
        yield there, scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
