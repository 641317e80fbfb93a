"""``epochal launch``: runs experiments where their section ``launch`` says, or exports tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from epochal import durable
from epochal.cli.arguments import add_config_words, split_files_and_overrides
from epochal.cli.check_configs import check_configs
from epochal.cli.pool import MAX_JOBS_HELP, connect, refuse_gpus, run_frozen, typed_command
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import add_choices, add_options, read_choices
from epochal.launch.cluster.connect import CLUSTERS, check_nodes
from epochal.launch.cluster.export import System, export_task
from epochal.launch.launch_options import LaunchOptions

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


def execute(args: argparse.Namespace) -> int:
    """Check the configs, then run or export them; returns the exit code."""
    files, overrides = split_files_and_overrides(args.words, "launch")
    choices = read_choices(args)
    refuse_gpus(choices)
    configs, code = check_configs(files, overrides, choices, outcome="nothing was started")
    if code:
        return code
    for one in configs:
        check_nodes(_launch_section(one), is_exported=args.export is not None)
    if args.export is not None:
        _export(args, configs, _format_command(files, overrides, choices))
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

    cluster = _find_cluster(configs)
    executor, leases = _use_this_machine(configs) if cluster is None else connect(cluster, args)
    jobs = freeze_configs(configs, overrides=overrides, choices=choices, command=typed_command())
    restart = None if cluster is None else restart_preempted
    return run_frozen(jobs, executor, leases, is_dry=args.dry_run, restart=restart)


def _find_cluster(configs: Sequence[CheckedConfig]) -> ClusterName | None:
    """The cluster of all configs; None is this machine."""
    first = _launch_section(configs[0]).get("on")
    for config in configs:
        other = _launch_section(config).get("on")
        if other.value != first.value:
            what = f"another config says {first.value!r}, this one {other.value!r}"
            hint = "launch them one by one"
            raise ConfigError(Problem("launch.on", what, other.place, hint))
    return next((name for name in CLUSTERS if name == first.value), None)


def _use_this_machine(configs: Sequence[CheckedConfig]) -> tuple[Executor, Leases]:
    from epochal.launch.pool.devices import DeviceLeases, parse_devices
    from epochal.launch.pool.local_executor import JOB_IMPORTS, LocalExecutor

    gpus = [_launch_section(config).get("gpus_per_node").value for config in configs]
    devices = parse_devices("cpu" if all(count == 0 for count in gpus) else None)
    return LocalExecutor(imports=JOB_IMPORTS), DeviceLeases(devices)


def _format_command(files: Sequence[Path], overrides: Sequence[str], choices: Choices) -> list[str]:
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
    return [*words, "--resume", "auto"]  # the next container continues


def _export(
    args: argparse.Namespace, configs: Sequence[CheckedConfig], words: Sequence[str]
) -> None:
    options = LaunchOptions(**_launch_section(configs[0]).to_plain())
    name = str(configs[0].report.expanded.mapping["tag"].value)
    text = export_task(args.export, name, words, options)
    if args.output is None:
        print(text, end="")
        return
    durable.write_text(args.output, text)
    start = {"kubernetes": "kubectl create -f", "skypilot": "sky jobs launch"}[args.export]
    print(f"wrote {args.output}; start it with: {start} {args.output}")


def _launch_section(config: CheckedConfig) -> Node:
    return config.report.expanded.mapping["launch"]
