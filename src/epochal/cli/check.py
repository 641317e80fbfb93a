"""``epochal check``: every mistake of a config at once, before anything is built."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from epochal.check import Default, Report, check, registry_for
from epochal.cli.table import format_count
from epochal.cli.words import add_config_words, add_json_option, print_json, split_words
from epochal.config import load
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's words and options."""
    add_config_words(parser)
    add_json_option(parser)
    parser.add_argument(
        "--defaults", action="store_true", help="also list the defaults that are filled in"
    )


def execute(args: argparse.Namespace) -> int:
    """Check every file, and every variant of it unless one was chosen."""
    files, overrides = split_words(args.words)
    checked = [_check_file(path, overrides, args) for path in files]
    if args.json:
        print_json([_to_json(one) for one in checked])
    else:
        for one in checked:
            _print_report(one, show_defaults=args.defaults)
    return next((one.exit_code for one in checked if one.problems), 0)


@dataclass(frozen=True)
class Checked:
    """What is wrong with one file, all its variants included."""

    path: Path
    problems: tuple[Problem, ...]
    defaults: tuple[Default, ...] = ()
    exit_code: int = ConfigError.exit_code


def _check_file(path: Path, overrides: list[str], args: argparse.Namespace) -> Checked:
    try:
        reports = list(_reports(path, overrides, args))
    except ConfigError as error:  # a file that cannot be read at all
        return Checked(path, error.problems, exit_code=error.exit_code)
    problems = dict.fromkeys(problem for report in reports for problem in report.problems)
    return Checked(path, tuple(problems), reports[0].defaults)


def _reports(path: Path, overrides: list[str], args: argparse.Namespace) -> Iterator[Report]:
    chosen: list[str | None] = [args.variant]
    if args.variant in (None, "all"):
        chosen = [None, *load(path, allow_python=args.allow_python).variants]
    for variant in chosen:
        config = load(path, variant=variant, overrides=overrides, allow_python=args.allow_python)
        yield check(config, registry_for(config, user_dir=args.user_dir))


def _print_report(checked: Checked, *, show_defaults: bool) -> None:
    for problem in checked.problems:
        print(f"{problem}\n", file=sys.stderr)
    if checked.problems:
        count = format_count(len(checked.problems), "mistake")
        print(f"{checked.path}: {count}", file=sys.stderr)
        return
    if show_defaults:
        for one in checked.defaults:
            print(f"  {one.key} = {one.value!r}  (default of {one.owner})")
    hint = "" if show_defaults or not checked.defaults else "; --defaults lists them"
    filled = format_count(len(checked.defaults), "default")
    print(f"{checked.path}: no mistakes, {filled} filled in{hint}")


def _to_json(checked: Checked) -> dict[str, object]:
    return {
        "file": str(checked.path),
        "problems": [
            {
                "key": problem.key,
                "what": problem.what,
                "source": problem.place.name if problem.place else None,
                "line": problem.place.line if problem.place else None,
                "column": problem.place.column if problem.place else None,
                "hint": problem.hint,
            }
            for problem in checked.problems
        ],
        "defaults": len(checked.defaults),
    }
