"""``epochal check``: lists all mistakes in configs without building anything."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from epochal.cli.arguments import add_config_arguments, print_json, split_files_and_overrides
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.check_file import ALL_VARIANTS, FileCheck, check_file
from epochal.experiment.config.choices import add_options, read_choices
from epochal.experiment.record.failure import show_error
from epochal.records.secrets import redact
from epochal.text.error_output import print_error
from epochal.text.formatting import format_count
from epochal.text.terminal import print_wrapped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from epochal.experiment.config.choices import Choices
    from epochal.experiment.tools.repro import ReproResult

_BUILD = "build"
"""The key of an error in the code of the parts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_config_arguments(parser, device="device for --build and --repro (default: the best one)")
    texts = {
        "--defaults": "also list the defaults",
        "--build": "also build all parts, and report problems that only model and data show",
        "--repro": "also train a few steps twice, and compare the results bit for bit",
        "--steps N": "number of steps for --repro (default: 10)",
    }
    add_options(parser, texts, steps=10)


def execute(args: argparse.Namespace) -> int:
    """Check all files, with all variants unless one was chosen."""
    files, overrides = split_files_and_overrides(args.words, "check")
    choices = read_choices(args)
    chosen = choices.copy()
    if choices.get("variant") is None:
        choices["variant"] = ALL_VARIANTS
    checked = [check_file(path, overrides, choices, is_plain_too=True) for path in files]
    checked = [_check_sweeps(one, chosen) for one in checked]
    if args.build:
        checked = [one if one.problems else _build(one, overrides, chosen) for one in checked]
    code = next((one.exit_code for one in checked if one.problems), 0)
    compared = []
    if args.repro and not code:
        from epochal.experiment.tools.repro import check_repro

        compared = [
            check_repro(one.path, steps=args.steps, overrides=overrides, choices=chosen)
            for one in checked
        ]
    if args.json:
        pairs = zip_longest(checked, compared)
        print_json([_to_json(one) | _repro_to_json(other) for one, other in pairs])
    else:
        for one, other in zip_longest(checked, compared):
            _print_report(one, show_defaults=args.defaults)
            _print_comparison(one.path, other)
    return code or next((one.exit_code for one in compared if one.exit_code), 0)


def _check_sweeps(checked: FileCheck, choices: Choices) -> FileCheck:
    """The check with problems of the sections ``sweep``; without any if there are others.

    A sweep is over the config without a variant, unless one is chosen.
    """
    chosen = checked.checked if choices.get("variant") else checked.checked[:1]
    swept = [one for one in chosen if one.config.sweep is not None]
    if checked.problems or not swept:
        return checked
    from epochal.sweep.check_space import check_sweep  # most configs have no sweep

    allow_python = choices.get("allow_python", False)
    found = [one for config in swept for one in check_sweep(config, allow_python=allow_python)[1]]
    return replace(checked, problems=tuple(dict.fromkeys(found)))


def _build(checked: FileCheck, overrides: Sequence[str], choices: Choices) -> FileCheck:
    """The check with problems that occur while the parts of the run are built."""
    from epochal.experiment.tools.plan_run import plan_file

    try:
        plans = plan_file(checked.path, overrides=overrides, **choices)
        problems = tuple(dict.fromkeys(problem for plan in plans for problem in plan.problems))
    except ConfigError as error:
        return replace(checked, problems=error.problems)
    except Exception as error:
        code = show_error(error, what="build")
        what = redact(f"cannot be built: {type(error).__name__}: {error}")
        return replace(checked, problems=(Problem(_BUILD, what),), exit_code=code)
    return replace(checked, problems=problems)


def _repro_to_json(compared: ReproResult | None) -> dict[str, object]:
    return {} if compared is None else {"repro": compared.to_json()}


def _print_comparison(path: Path, compared: ReproResult | None) -> None:
    if compared is None:
        return
    if compared.is_same:
        steps = format_count(compared.steps, "step")
        same = "losses, weights and optimizer are bitwise equal"
        print_wrapped([f"{path}: {steps} trained twice; {same}"])
    elif compared.first_difference is None:
        print(f"{path}: the training failed", file=sys.stderr)
    else:
        after = compared.first_difference
        where = f"after step {after}" if after else "before the first step"
        print(f"{path}: two trainings differ {where}", file=sys.stderr)
        for part in compared.parts:
            print(f"  {part}", file=sys.stderr)
        print(f"  {compared.hint}", file=sys.stderr)


def _print_report(checked: FileCheck, *, show_defaults: bool) -> None:
    if any(problem.key == _BUILD for problem in checked.problems):
        print_error(f"{checked.path}: cannot be built")  # a panel shows why
        return
    for problem in checked.problems:
        print_error(f"{problem}\n")
    if checked.problems:
        count = format_count(len(checked.problems), "mistake")
        print_error(f"{checked.path}: {count}")
        return
    if show_defaults:
        print_wrapped(
            f"  {one.key} = {one.value!r}  (default of {one.owner})" for one in checked.defaults
        )
    hint = "" if show_defaults or not checked.defaults else "; --defaults lists them"
    filled = format_count(len(checked.defaults), "default")
    print_wrapped([f"{checked.path}: no mistakes, {filled} filled in{hint}"])


def _to_json(checked: FileCheck) -> dict[str, object]:
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
