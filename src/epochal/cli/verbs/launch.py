"""``epochal launch``: runs experiments where their section ``launch`` says, or exports tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from epochal import durable
from epochal.cli.arguments import add_config_words, split_files_and_overrides
from epochal.cli.check_configs import check_configs
from epochal.cli.pool import (
    MAX_JOBS_HELP,
    connect,
    refuse_gpus,
    require_devices,
    require_records,
    run_frozen,
    typed_command,
)
from epochal.cli.then_test import add_then_test_option, require_test_data
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import add_choices, add_options, read_choices
from epochal.launch.cluster.connect import CLUSTERS, check_nodes
from epochal.launch.cluster.export import System, export_task
from epochal.launch.launch_options import LaunchOptions
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from epochal.config.node import Node
    from epochal.experiment.config.check_file import CheckedConfig
    from epochal.experiment.config.choices import Choices
    from epochal.launch.cluster.connect import ClusterName
    from epochal.launch.pool.devices import Leases
    from epochal.launch.pool.executor import Executor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_config_words(parser)
    text = "print a task file for this system, and run nothing"
    parser.add_argument("--export", choices=get_args(System), help=text)
    texts = {
        "--output FILE": "write the task file instead of printing it",
        "--max-jobs N": MAX_JOBS_HELP,
        "--dry-run": "only print what would start where",
    }
    add_options(parser, texts)
    add_choices(parser)
    add_then_test_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Check the configs, then run or export them; returns the exit code."""
    files, overrides = split_files_and_overrides(args.words, "launch")
    choices = read_choices(args)
    refuse_gpus(choices)
    configs, code = check_configs(files, overrides, choices, outcome="nothing was started")
    if code:
        return code
    require_test_data(args, *configs)
    for one in configs:
        check_nodes(_launch_section(one), is_exported=args.export is not None)
    if args.export is not None:
        choices = _add_processes(configs, choices)
        _export(args, configs, _format_command(args, files, overrides, choices))
        return 0
    return _run(args, configs, overrides, choices)


def _run(
    args: argparse.Namespace,
    configs: Sequence[CheckedConfig],
    overrides: Sequence[str],
    choices: Choices,
) -> int:
    from epochal.experiment.config.freeze_jobs import freeze_configs
    from epochal.launch.cluster.node_job import restart_preempted

    require_records(choices)
    cluster = _find_cluster(configs)
    if cluster is None:
        choices = _add_processes(configs, choices)
        executor, leases = _use_this_machine(configs, choices)
        require_devices(leases, choices)
    else:
        executor, leases = connect(cluster, args)
    jobs = freeze_configs(
        configs,
        overrides=overrides,
        choices=choices,
        command=typed_command(),
        has_test=args.then_test,
    )
    restart = None if cluster is None else restart_preempted
    return run_frozen(jobs, executor, leases, is_dry=args.dry_run, restart=restart)


def _find_cluster(configs: Sequence[CheckedConfig]) -> ClusterName | None:
    """The cluster of all configs; None is this machine."""
    where = _require_same(configs, "on")
    return next((name for name in CLUSTERS if name == where), None)


def _require_same(configs: Sequence[CheckedConfig], key: str) -> object:
    """The value of a key of ``launch`` that all configs share."""
    first = _launch_section(configs[0]).get(key)
    for config in configs:
        other = _launch_section(config).get(key)
        if other.value != first.value:
            what = f"another config says {first.value!r}, this one {other.value!r}"
            hint = "launch them one by one"
            raise ConfigError(Problem(f"launch.{key}", what, other.place, hint))
    return first.value


def _add_processes(configs: Sequence[CheckedConfig], choices: Choices) -> Choices:
    """The choices, with the processes of each run on this machine."""
    for key in ("gpus_per_node", "nproc_per_node"):
        _require_same(configs, key)
    num_ranks = _read_options(configs[0]).num_ranks
    return choices if choices.get("nproc") or num_ranks == 1 else {**choices, "nproc": num_ranks}


def _use_this_machine(
    configs: Sequence[CheckedConfig], choices: Choices
) -> tuple[Executor, Leases]:
    from epochal.launch.pool.devices import DeviceLeases, parse_devices
    from epochal.launch.pool.local_executor import JOB_IMPORTS, LocalExecutor

    num_gpus = _read_options(configs[0]).gpus_per_node
    chosen = choices.get("device")
    devices = parse_devices(str(chosen) if chosen else "cpu" if num_gpus == 0 else None)
    num_found = sum(one.name != "cpu" for one in devices)
    if num_gpus and not chosen and num_found < num_gpus:
        what = f"needs {format_count(num_gpus, 'GPU')}, and this machine has {num_found}"
        place = _launch_section(configs[0]).get("gpus_per_node").place
        hint = "write launch.gpus_per_node=0 for the CPU"
        raise ConfigError(Problem("launch.gpus_per_node", what, place, hint))
    return LocalExecutor(imports=JOB_IMPORTS), DeviceLeases(devices)


def _format_command(
    args: argparse.Namespace, files: Sequence[Path], overrides: Sequence[str], choices: Choices
) -> list[str]:
    """The command that runs the same config, from the folder of the project."""
    if len(files) > 1:
        raise ConfigError(Problem("--export", "takes one config", hint=f"name {files[0]} only"))
    if files[0].is_absolute() or ".." in files[0].parts:
        what = f"the task starts in this folder, and {str(files[0])!r} is not below it"
        hint = "change to the folder of the project, and name the file from there"
        raise ConfigError(Problem("--export", what, hint=hint))
    words = ["epochal", "run", str(files[0]), *overrides]
    for name, value in choices.items():
        option = f"--{name.replace('_', '-')}"
        if value is not None and value is not False and name != "begun":
            words.append(option if value is True else f"{option}={value}")
    words += ["--then-test"] if args.then_test else []
    return [*words, "--resume", "auto"]  # the next container continues


def _export(
    args: argparse.Namespace, configs: Sequence[CheckedConfig], words: Sequence[str]
) -> None:
    options = _read_options(configs[0])
    name = str(configs[0].report.expanded.mapping["tag"].value)
    text = export_task(args.export, name, words, options)
    if args.output is None:
        print(text, end="")
        return
    durable.write_text(args.output, text)
    start = {"kubernetes": "kubectl create -f", "skypilot": "sky jobs launch"}[args.export]
    print(f"wrote {args.output}; start it with: {start} {args.output}")


def _read_options(config: CheckedConfig) -> LaunchOptions:
    return LaunchOptions(**_launch_section(config).to_plain())


def _launch_section(config: CheckedConfig) -> Node:
    return config.report.expanded.mapping["launch"]
