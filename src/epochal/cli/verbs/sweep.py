"""``epochal sweep``: searches hyper-parameters; each trial is an ordinary run."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from epochal.cli.arguments import add_runs_dir_option, split_single_file
from epochal.cli.pool import (
    add_cluster_options,
    add_pool_options,
    find_executor,
    refuse_gpus,
    require_devices,
    typed_command,
)
from epochal.cli.then_test import add_then_test_option, require_test_data
from epochal.config.source_file import FrozenSource, display_name
from epochal.errors import ConfigError, Problem, RecordError
from epochal.experiment.config.check_file import check_file, names_several
from epochal.experiment.config.choices import add_choices, add_options, read_choices
from epochal.records.layout.sweep_folders import get_sweeps_dir
from epochal.sweep.check_space import check_sweep
from epochal.sweep.settings import KEYS
from epochal.sweep.sweep_folder import SweepFolder, create_sweep, find_sweep, list_sweeps
from epochal.text.command import epochal_command
from epochal.text.error_output import print_error
from epochal.text.escape import escape_control
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Sequence

    from epochal.experiment.config.choices import Choices
    from epochal.launch.jobs.frozen_job import FrozenJob
    from epochal.launch.pool.backlog import WaitingJob
    from epochal.launch.pool.devices import DeviceLease, Leases
    from epochal.launch.pool.executor import Executor
    from epochal.sweep.settings import SweepSettings
    from epochal.sweep.trials import Trial

_MAX_SHOWN = 10
_MAX_COUNTED = 100_000
_CONFIG_SUFFIXES = (".yaml", ".yml", ".toml", ".json", ".py")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    text = (
        "a config file with a section `sweep`, or the name of a sweep to continue, `last` for the "
        "newest; and overrides such as sweep.trials=40"
    )
    parser.add_argument("words", nargs="*", metavar="FILE|SWEEP|key=value", help=text)
    texts = {
        "--dry-run": "check the search space, and print the next trials",
        "--export FILE": "write a sweep for optuna-dashboard: *.db for SQLite, *.log for a journal",
    }
    add_options(parser, texts)
    add_pool_options(parser)
    add_cluster_options(parser)
    add_choices(parser)
    add_then_test_option(parser)
    add_runs_dir_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Start, continue, change or list sweeps; returns the exit code."""
    if not args.words:
        return _list(args)
    named = [word for word in args.words if "=" not in word]
    if len(named) == 1 and Path(named[0]).suffix.lower() not in _CONFIG_SUFFIXES:
        folder = find_sweep(named[0], args.runs_dir)
        if args.export is not None:
            return _export(folder, args.export)
        changes = [word for word in args.words if "=" in word]
        _refuse_frozen(args, changes)
        _note_edited_config(folder)
        if args.dry_run:
            return _show_next(args, folder, folder.check_changes(changes))
        if changes:
            folder.change(changes)
            print(f"changed: {', '.join(changes)}")
        return _work(args, folder, is_changed=bool(changes))
    if args.export is not None:
        hint = f"start it first, then: {epochal_command()} sweep last --export {args.export}"
        raise ConfigError(Problem("--export", "takes the name of a sweep", hint=hint))
    return _start(args)


def _export(folder: SweepFolder, path: Path) -> int:
    from epochal.sweep.report.optuna_export import export_study
    from epochal.sweep.trials import read_trials

    settings = folder.read_settings()
    trials = read_trials(folder, settings)
    address = export_study(folder.id, settings, trials.values(), path)
    print(f"wrote {format_count(len(trials), 'trial')}; open it with: optuna-dashboard {address}")
    return 0


def _list(args: argparse.Namespace) -> int:
    from epochal.cli.pages.sweep_page import summarise_sweep

    found = list_sweeps(args.runs_dir)
    for one in found:
        print(summarise_sweep(one))
    if not found:
        print(f"no sweeps yet; start one with: {epochal_command()} sweep CONFIG")
    return 0


def _start(args: argparse.Namespace) -> int:
    _refuse_file_of_sweep([word for word in args.words if "=" not in word])
    path, overrides = split_single_file(args.words, "sweep")
    choices = read_choices(args)
    _refuse_unsupported(choices)
    found = check_file(path, overrides, choices)
    problems, settings = list(found.problems), None
    if found.checked:  # else the file could not be read
        allow_python = choices.get("allow_python", False)
        settings, wrong = check_sweep(found.checked[0], allow_python=allow_python)
        problems += wrong
    if problems or settings is None:
        for problem in dict.fromkeys(problems):
            print_error(f"{problem}\n")
        print_error(f"{path}: {format_count(len(problems), 'mistake')}; nothing was started")
        return found.exit_code if found.problems else ConfigError.exit_code
    checked = found.checked[0]
    require_test_data(args, checked)
    for note in settings.notes:
        print(f"note: {note}")
    from epochal.experiment.config.freeze_jobs import freeze_configs, get_log_dir

    command, places = typed_command(), _find_places(args)

    def freeze(folder: Path) -> FrozenJob:
        return freeze_configs(
            [checked],
            overrides=overrides,
            choices=choices,
            command=command,
            batch=folder,
            has_test=args.then_test,
        )[0].job

    log_dir = get_log_dir(checked)
    if args.dry_run:
        num_left = _show_proposals(settings)
        with tempfile.TemporaryDirectory() as code:
            base = freeze(Path(code))
        job = SweepFolder(get_sweeps_dir(log_dir) / "NEW").plan_job(base)
        _show_start(replace(job, preferred=args.device or ""), num_left, places)
        return 0
    name = settings.name or str(checked.report.expanded.mapping["tag"].value)
    folder = create_sweep(log_dir, freeze, name=name, command=command)
    print(f"sweep {folder.id}")
    return _work(args, folder, places)


def _refuse_file_of_sweep(named: Sequence[str]) -> None:
    """Refuse ``last config.yaml``: a sweep that exists has its own config."""
    files = [word for word in named if Path(word).suffix.lower() in _CONFIG_SUFFIXES]
    if len(named) == 2 and len(files) == 1:
        sweep = next(word for word in named if word not in files)
        command = f"{epochal_command()} sweep"
        hint = f"`{command} {sweep}` continues it, `{command} {files[0]}` starts another one"
        what = "a sweep continues with the config it began with"
        raise ConfigError(Problem(files[0], what, hint=hint))


def _note_edited_config(folder: SweepFolder) -> None:
    """Print which files of the config were edited, since trials do not follow them."""
    source = folder.read_base().source
    if isinstance(source, FrozenSource) and (changed := source.find_changed()):
        names = ", ".join(map(display_name, changed))
        print(f"note: edited since the sweep began, which continues without the edits: {names}")


def _refuse_frozen(args: argparse.Namespace, changes: Sequence[str]) -> None:
    """Refuse to change what all trials of a sweep share; only the search itself can change."""
    hint = "start another sweep from its config"
    for change in changes:
        key = change.partition("=")[0]
        if key.partition(".")[0] in KEYS:
            raise ConfigError(Problem(key, "is a key of sweep", hint=f"write sweep.{change}"))
        if not key.startswith("sweep."):
            what = "is frozen: only the search of a sweep can change"
            raise ConfigError(Problem(key, what, hint=hint))
    given = {name: value for name, value in read_choices(args).items() if value}
    if args.then_test:
        given["then_test"] = True
    for name in sorted(given.keys() - {"device", "begun"}):
        option = f"--{name.replace('_', '-')}"
        raise ConfigError(Problem(option, "is frozen with the config of the sweep", hint=hint))


def _refuse_unsupported(choices: Choices) -> None:
    refuse_gpus(choices)
    if choices.get("no_file"):
        what = "a sweep reads the records of its trials"
        raise ConfigError(Problem("--no-file", what, hint="leave it out"))
    if names_several(choices.get("variant")):
        what = f"a sweep takes one variant, got {choices.get('variant')!r}"
        raise ConfigError(Problem("--variant", what, hint="start a sweep for each"))


def _show_proposals(settings: SweepSettings, trials: Collection[Trial] = ()) -> int:
    """Print the next trials, as they would be proposed now; returns how many are left."""
    from epochal.sweep.backlog import create_next_sampler

    sampler = create_next_sampler(settings, trials)
    first, total = max((one.number for one in trials), default=-1) + 1, settings.num_trials
    size = format_count(total or 0, "trial")
    num_left = max((total or 0) - len(trials), 0)
    if total is None:
        allowed = filter(settings.is_allowed, settings.space.iter_grid())
        count = sum(1 for _ in islice(allowed, _MAX_COUNTED))
        size, num_left = f"all {count:,} combinations", max(count - len(trials), 0)
    for number in range(first, first + min(num_left, _MAX_SHOWN)):
        values = sampler.ask(number)
        if values is None:
            break
        print(f"trial {number}: " + ", ".join(f"{key}={value}" for key, value in values.items()))
    print(f"{settings.method}: {size} by {', '.join(map(str, settings.objectives))}")
    return num_left


def _show_start(job: WaitingJob, num_left: int, places: tuple[Executor, Leases]) -> None:
    """Print how many trials would start now, where, and by which command."""
    from epochal.launch.pool.pool import plan_start

    executor, leases = places
    held: list[DeviceLease] = []
    while len(held) < num_left and (lease := leases.acquire(job.request)) is not None:
        held.append(lease)
    if held:
        names = ", ".join(dict.fromkeys(lease.device.name for lease in held))
        print(f"{len(held)} at once on {names}; each trial starts as")
        print(escape_control(f"  cd {job.job.cwd}"))
        print(escape_control(f"  {executor.describe(plan_start(job, held[0]))}"))
    elif num_left:
        print("no trial can start now: no device is free")
    for lease in held:
        leases.release(lease)


def _show_next(args: argparse.Namespace, folder: SweepFolder, settings: SweepSettings) -> int:
    """Print which trials a sweep would continue and start; nothing is changed."""
    from epochal.cli.pages.sweep_page import format_values
    from epochal.sweep.trials import read_trials

    trials = read_trials(folder, settings).values()
    waiting = [trial for trial in trials if not trial.is_ended]
    for trial in waiting:
        print(escape_control(f"trial {trial.number} waits: {format_values(trial)}"))
    num_left = len(waiting) + _show_proposals(settings, trials)
    number = waiting[0].number if waiting else len(trials)
    job = folder.plan_job(folder.read_base(), number)
    _show_start(replace(job, preferred=args.device or ""), num_left, _find_places(args))
    num_ended = len(trials) - len(waiting)
    print(f"{format_count(num_ended, 'trial')} ended; nothing was started or changed")
    return 0


def _find_places(args: argparse.Namespace) -> tuple[Executor, Leases]:
    """What starts trials, and on which devices."""
    if args.devices is None:
        args.devices = args.device  # all trials run there
    executor, leases = find_executor(args)
    require_devices(leases, read_choices(args))
    return executor, leases


def _work(
    args: argparse.Namespace,
    folder: SweepFolder,
    places: tuple[Executor, Leases] | None = None,
    *,
    is_changed: bool = False,
) -> int:
    from epochal.cli.pages.sweep_page import SweepPage, print_sweep
    from epochal.launch.pool.pool import Pool
    from epochal.launch.pool.run_jobs import exit_code_of
    from epochal.sweep.backlog import SweepBacklog
    from epochal.sweep.report.write_report import write_report
    from epochal.sweep.sweep_mail import send_sweep_mail

    try:
        lock = folder.lock()
    except RecordError:
        if is_changed:
            print("the process that runs this sweep applies the changes")
            return 0
        raise
    try:
        executor, leases = places or _find_places(args)
        backlog = SweepBacklog(folder, preferred=args.device or "")
        with SweepPage(backlog) as page:
            pool = Pool(backlog, executor, leases, show=page.show)
            pool.run()
        backlog.write_summary()
    finally:
        lock.release()
    print_sweep(backlog)
    if any(one.is_ended for one in backlog.trials.values()):
        for written in write_report(folder, backlog.settings, backlog.trials.values()):
            print(f"report: {written}")
    if backlog.is_done() and backlog.ended and not backlog.is_stopped:
        send_sweep_mail(backlog)
    return exit_code_of(pool, [])
