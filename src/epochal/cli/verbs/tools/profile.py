"""``epochal profile``: profiles a few steps, and lists the layers of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.cli.arguments import add_config_arguments, print_json, split_single_file
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import add_options, read_choices
from epochal.experiment.record.failure import show_error, show_failure
from epochal.records.metrics.time_spent import format_precise_time
from epochal.text.formatting import format_count
from epochal.text.interrupts import deferring_interrupts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from epochal.experiment.tools.profile import ProfileResult

_MAX_OPERATORS = 12
_MINIMUM = {"wait": 0, "warmup": 1, "steps": 1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_config_arguments(parser, takes_all=False)
    texts = {
        "--steps N": "steps to record (default: 10)",
        "--wait N": "steps to skip first (default: 5)",
        "--warmup N": "steps to warm up (default: 2)",
        "--shapes": "record the shapes of inputs",
        "--memory": "record the memory of tensors",
        "--stack": "record source lines; slow",
        "--out DIR": "folder for the trace (default: profile-TAG)",
    }
    add_options(parser, texts, steps=10, wait=5, warmup=2)


def execute(args: argparse.Namespace) -> int:
    """Profile a few steps and print the result."""
    path, overrides = split_single_file(args.words, "profile")
    _require_enough(args)
    with deferring_interrupts():
        from epochal.experiment.tools.profile import profile_file
        from epochal.hooks.profiler import Profiler

    detail = {"shapes": args.shapes, "memory": args.memory, "stack": args.stack}
    profiler = Profiler(wait=args.wait, warmup=args.warmup, steps=args.steps, **detail)
    try:
        done = profile_file(path, profiler, out=args.out, overrides=overrides, **read_choices(args))
    except Exception as error:
        return show_error(error)
    show_failure(done.result)
    if args.json:
        print_json(done.to_json())
    elif done.profile is not None:
        print("\n".join(_describe(done)))
    return done.result.exit_code


def _require_enough(args: argparse.Namespace) -> None:
    for key, least in _MINIMUM.items():
        if getattr(args, key) < least:
            what = f"--{key} must be at least {least}, got {getattr(args, key)}"
            raise ConfigError(Problem("command line", what, hint=f"write --{key} {least}"))


def _describe(done: ProfileResult) -> Iterator[str]:
    from epochal.hooks.profiler import operator_lines

    profile = done.profile
    assert profile is not None  # checked by the caller
    shares = ", ".join(f"{name} {share:.0%}" for name, share in profile.shares.items())
    pace = f"{format_precise_time(profile.step_seconds)} a step, including the profiler"
    yield f"{done.tag} on {done.device}: {format_count(profile.steps, 'step')} profiled"
    yield f"  time     {pace}"
    yield f"  shares   {shares}"
    yield f"  advice   {profile.advice}"
    if profile.dir is not None:
        yield f"  folder   {profile.dir}"
        yield "  open     trace.json.gz in ui.perfetto.dev or chrome://tracing"
        yield "  more     table.txt has all operators, model.txt all layers"
    yield ""
    yield from (f"  {line}" for line in operator_lines(profile, _MAX_OPERATORS))
    if done.model is not None:
        yield ""
        yield from (f"  {line}".rstrip() for line in done.model.lines())
