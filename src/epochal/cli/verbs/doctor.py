"""``epochal doctor``: whether this machine and this folder can be trusted with runs."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.cli.arguments import add_json_option, print_json
from epochal.errors import RecordError
from epochal.inspect.crash_tests import KILLS, check_full_disk, check_kills
from epochal.inspect.diagnostic import Diagnostic
from epochal.inspect.host import check_devices, check_host
from epochal.inspect.storage import check_storage

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's words and options."""
    parser.add_argument(
        "dir",
        nargs="?",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="where runs are to be kept (default: runs)",
    )
    parser.add_argument(
        "--kills", type=int, default=KILLS, metavar="N", help="how many saves to interrupt"
    )
    add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Examine, tell each finding as it comes; 1 if something is wrong."""
    findings: list[Diagnostic] = []
    with _scratch(args.dir) as (folder, scratch):
        if not args.json:
            print(f"examining {folder} and this machine; this takes less than a minute")
        for finding in _examine(scratch, args.kills):
            findings.append(finding)
            if not args.json:
                print(_format(finding), flush=True)
    has_failed = any(finding.level == "fail" for finding in findings)
    if args.json:
        print_json([finding.to_json() for finding in findings])
    else:
        _print_verdict(findings)
    return int(has_failed)


def _examine(scratch: Path, kills: int) -> Iterator[Diagnostic]:
    yield from check_host()
    yield from check_storage(scratch)
    yield _attempt("kill", lambda: check_kills(scratch, kills=kills, tell=_show_progress))
    yield _attempt("full disk", lambda: check_full_disk(scratch))
    yield from check_devices()


def _attempt(name: str, examine: Callable[[], Diagnostic]) -> Diagnostic:
    try:
        return examine()
    except OSError as error:
        hint = "look at the rights and the free space there"
        return Diagnostic(name, "fail", f"could not be tried: {error}", hint)


def _show_progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        end = "\r" if done < of else "\r\x1b[K"
        print(f"  killing processes that save: {done}/{of}", end=end, file=sys.stderr, flush=True)


def _format(finding: Diagnostic) -> str:
    line = f"{_MARKS[finding.level]}  {finding.name:<13}  {finding.what}"
    return f"{line}\n{'':21}{finding.hint}" if finding.hint else line


def _print_verdict(findings: list[Diagnostic]) -> None:
    counts = {level: sum(one.level == level for one in findings) for level in _MARKS}
    if counts["fail"]:
        print(f"\n{counts['fail']} of {len(findings)} failed: mend that before you keep runs here")
    elif counts["warn"]:
        print(f"\nruns are safe here; {counts['warn']} of {len(findings)} could be better")
    else:
        print("\nruns are safe here")


@contextmanager
def _scratch(folder: Path) -> Iterator[tuple[Path, Path]]:
    """A folder to write in on the same file system; nothing is left of it."""
    there = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    scratch = there / f".epochal-doctor-{os.getpid()}"
    try:
        scratch.mkdir()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RecordError(
            f"{there}: nothing can be written there: {reason}\n  name another folder"
        ) from error
    try:
        yield there, scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
