"""``epochal check``: every mistake of a config at once, before anything is built."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from epochal.check import Report, check, registry_for
from epochal.cli.words import add_config_words, add_json_option, split_words
from epochal.config import load
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    import argparse
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
    reports = {path: _check_file(path, overrides, args) for path in files}
    problems = {path: _distinct(found) for path, found in reports.items()}
    if args.json:
        print(json.dumps([_to_json(path, found) for path, found in problems.items()], indent=2))
    else:
        for path, found in problems.items():
            _print_report(path, found, reports[path], show_defaults=args.defaults)
    return ConfigError.exit_code if any(problems.values()) else 0


def _check_file(path: Path, overrides: list[str], args: argparse.Namespace) -> list[Report]:
    chosen: list[str | None] = [args.variant]
    if args.variant in (None, "all"):
        chosen = [None, *load(path, allow_python=args.allow_python).variants]
    reports = []
    for variant in chosen:
        config = load(path, variant=variant, overrides=overrides, allow_python=args.allow_python)
        reports.append(check(config, registry_for(config, user_dir=args.user_dir)))
    return reports


def _distinct(reports: list[Report]) -> list[Problem]:
    return list(dict.fromkeys(problem for report in reports for problem in report.problems))


def _print_report(
    path: Path, problems: list[Problem], reports: list[Report], *, show_defaults: bool
) -> None:
    for problem in problems:
        print(f"{problem}\n", file=sys.stderr)
    if problems:
        count = len(problems)
        print(f"{path}: {count} mistake{'s' * (count > 1)}", file=sys.stderr)
        return
    defaults = reports[0].defaults
    if show_defaults:
        for default in defaults:
            print(f"  {default.key} = {default.value!r}  (default of {default.owner})")
    hint = "" if show_defaults or not defaults else "; --defaults lists them"
    print(f"{path}: no mistakes, {len(defaults)} defaults filled in{hint}")


def _to_json(path: Path, problems: list[Problem]) -> dict[str, object]:
    return {
        "file": str(path),
        "problems": [
            {
                "key": problem.key,
                "what": problem.what,
                "source": problem.place.name if problem.place else None,
                "line": problem.place.line if problem.place else None,
                "column": problem.place.column if problem.place else None,
                "hint": problem.hint,
            }
            for problem in problems
        ],
    }
