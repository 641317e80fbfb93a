"""``epochal run``: trains the experiments of configs, one after the other or on a pool."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from epochal.cli.arguments import add_config_words, split_files_and_overrides
from epochal.cli.check_configs import check_configs
from epochal.cli.keep_alive import add_keep_alive_options, keep_alive, require_keep_alive
from epochal.cli.pool import add_pool_options, run_pool, wants_pool
from epochal.cli.then_test import add_then_test_option, require_test_data
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.check_file import names_several
from epochal.experiment.config.choices import (
    Choices,
    add_choices,
    add_resume_choices,
    read_choices,
)
from epochal.text.interrupts import deferring_interrupts, raising_on_preemption

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from epochal.engine import RunResult
    from epochal.experiment.config.check_file import CheckedConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_config_words(parser)
    add_choices(parser)
    add_resume_choices(parser)
    add_pool_options(parser)
    add_keep_alive_options(parser)
    add_then_test_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Check every file, then run them; returns the exit code of the first that failed."""
    files, overrides = split_files_and_overrides(args.words)
    choices: Choices = {**read_choices(args), "can_fork": True}
    _refuse_one_run_for_all(files, choices)
    require_keep_alive(args)
    _refuse_then_test(args)
    _refuse_with_nodes(args, files)
    outcome = "nothing was started" if len(files) > 1 else ""
    configs, code = check_configs(files, overrides, choices, outcome=outcome)
    if code:
        return code
    require_test_data(args, *configs)
    if wants_pool(args):
        return run_pool(args, configs, overrides, choices)
    if args.keep_alive:
        return keep_alive(args, files)
    if args.dry_run:
        return _print_ranks(configs, choices)
    with raising_on_preemption():
        return _run_all(configs, overrides, choices, then_test=args.then_test)


def _run_all(
    configs: list[CheckedConfig], overrides: list[str], choices: Choices, *, then_test: bool
) -> int:
    with deferring_interrupts():
        from epochal.experiment.run import run_series, test_trained

    results: list[RunResult] = []
    for number, checked in enumerate(configs, start=1):
        if len(configs) > 1:
            variant = checked.config.variant
            title = f"{checked.config.path}" + f", variant {variant}" * (variant is not None)
            print(f"run {number} of {len(configs)}: {title}", flush=True)
        results += run_series([checked], overrides=overrides, **choices)
        choices["begun"] = None  # only the first run counts the time of the imports
        if then_test and results[-1].ok:
            results += test_trained(results[-1], **_choose_for_test(choices))
        if results[-1].status in ("interrupted", "preempted"):
            break
    if len(results) > 1:
        ends = Counter(result.status for result in results if not result.ok)
        text = ", ".join(f"{count} {status}" for status, count in ends.items()) or "0 failed"
        print(f"{len(results)} runs, {text}", file=sys.stderr if ends else sys.stdout)
    return next((result.exit_code for result in results if result.exit_code), 0)


def _print_ranks(configs: list[CheckedConfig], choices: Choices) -> int:
    """Print which processes a run would have."""
    from epochal.experiment.build.device import describe_ranks

    for checked in configs:
        print(f"{checked.config.path}: {describe_ranks(choices)}")
    return 0


def _choose_for_test(choices: Choices) -> Choices:
    return Choices(
        device=choices.get("device"),
        gpus=choices.get("gpus"),
        nproc=choices.get("nproc"),
        can_fork=True,
        desc=choices.get("desc"),
        debug=choices.get("debug", False),
        fast=choices.get("fast", False),
        user_dir=choices.get("user_dir"),
        raise_errors=False,
    )


def _refuse_then_test(args: argparse.Namespace) -> None:
    for option in ("no_file", "keep_alive"):
        if args.then_test and getattr(args, option, None):
            what = f"cannot be combined with --{option.replace('_', '-')}"
            raise ConfigError(Problem("--then-test", what, hint="run `epochal test` afterwards"))


def _refuse_with_nodes(args: argparse.Namespace, files: list[Path]) -> None:
    """Refuse what several machines cannot agree on."""
    if args.nnodes is None:
        return
    if len(files) > 1 or names_several(args.variant):
        what, hint = "several machines share one run", "name one config and one variant"
        raise ConfigError(Problem("--nnodes", what, hint=hint))
    for option, hint in (
        ("keep_alive", "leave it out: the machines restart automatically"),
        ("then_test", "run `epochal test` afterwards"),
        ("no_file", "leave it out: the machines share the record"),
    ):
        if getattr(args, option):
            what = f"cannot be combined with --{option.replace('_', '-')}"
            raise ConfigError(Problem("--nnodes", what, hint=hint))


def _refuse_one_run_for_all(files: list[Path], choices: Choices) -> None:
    named = choices.get("resume")
    if named not in (None, "auto") and (len(files) > 1 or names_several(choices.get("variant"))):
        what = f"several configs cannot resume one run, {str(named)!r}"
        raise ConfigError(Problem("--resume", what, hint="name one config, or --resume auto"))
