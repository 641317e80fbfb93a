"""``epochal check``: every mistake of a config at once, before anything is built."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from epochal.cli.words import add_config_words, add_json_option, print_json, split_words
from epochal.experiment.arguments import choices_of
from epochal.experiment.figures import format_count
from epochal.experiment.upfront import ALL, Checked, check_file

if TYPE_CHECKING:
    import argparse


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
    choices = choices_of(args)
    if choices.get("variant") is None:
        choices["variant"] = ALL
    checked = [check_file(path, overrides, choices, is_plain_too=True) for path in files]
    if args.json:
        print_json([_to_json(one) for one in checked])
    else:
        for one in checked:
            _print_report(one, show_defaults=args.defaults)
    return next((one.exit_code for one in checked if one.problems), 0)


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
