"""``epochal run --devices``: runs several experiments at once on a pool."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NoReturn

from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import add_options
from epochal.text.command import command_line_words
from epochal.text.escape import decode_typed
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from epochal.experiment.config.check_file import CheckedConfig
    from epochal.experiment.config.choices import Choices
    from epochal.launch.cluster.connect import ClusterName
    from epochal.launch.pool.backlog import Restart, WaitingJob
    from epochal.launch.pool.devices import DeviceLeases, Leases
    from epochal.launch.pool.executor import Executor

MAX_JOBS_HELP = (
    "how many jobs at once on a cluster (default: one for each device of Ray; any on Slurm)"
)


def add_pool_options(parser: argparse.ArgumentParser) -> None:
    """Declare the devices of a pool."""
    group = parser.add_argument_group("running several experiments at once")
    texts = {
        "--devices LIST": "devices to use, such as 0,1 or cpu; each run has its own process "
        "(default with --per-device: all GPUs, else the CPU)",
        "--per-device N": "how many runs share a device at once (default with --devices: 1)",
    }
    add_options(group, texts)


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Declare the cluster that runs jobs instead of this machine."""
    group = parser.add_argument_group("running on a cluster")
    text = "where jobs run (default: local, this machine)"
    group.add_argument("--on", choices=("local", "ray", "slurm"), default="local", help=text)
    add_options(group, {"--max-jobs N": MAX_JOBS_HELP})


def wants_pool(args: argparse.Namespace) -> bool:
    """Whether the options ask for a pool."""
    return args.devices is not None or args.per_device is not None


def make_leases(args: argparse.Namespace) -> DeviceLeases:
    """The devices that the options name."""
    from epochal.launch.pool.devices import DeviceLeases, parse_devices

    per_device = 1 if args.per_device is None else args.per_device
    devices = parse_devices(args.devices, per_device=per_device)
    return DeviceLeases(devices, per_device=per_device)


def require_devices(leases: Leases, choices: Choices) -> None:
    """Refuse ``--device`` and ``--nproc`` if the pool has no such device, or too few for a run."""
    from epochal.launch.pool.devices import DeviceRequest

    device = choices.get("device")
    if device is not None and not leases.has(str(device)):
        names = ", ".join(one.name for one in leases.devices)
        _refuse("--device", f"{device!r} is not a device of the pool: {names}", "leave it out")
    misfit = leases.find_misfit(DeviceRequest(num_processes=choices.get("nproc") or 1))
    if misfit:
        _refuse("--nproc", f"each run {misfit}", "name more devices: --devices 0,1,2,3")


def find_executor(args: argparse.Namespace) -> tuple[Executor, Leases]:
    """What starts jobs where ``--on`` says, and how many at once."""
    from epochal.launch.pool.local_executor import JOB_IMPORTS, LocalExecutor

    if args.on == "local":
        return LocalExecutor(imports=JOB_IMPORTS), make_leases(args)
    if wants_pool(args):
        what, hint = f"{args.on} gives each job its device", "use --max-jobs for fewer at once"
        raise ConfigError(Problem("--devices", what, hint=hint))
    return connect(args.on, args)


def connect(cluster: ClusterName, args: argparse.Namespace) -> tuple[Executor, Leases]:
    """What starts jobs on a cluster; takes ``max_jobs`` and ``dry_run`` from the options."""
    from epochal.launch.cluster.connect import connect_cluster

    if cluster == "ray":
        print("connecting to Ray ...", flush=True)
    return connect_cluster(cluster, max_jobs=args.max_jobs, is_dry=args.dry_run)


def run_pool(
    args: argparse.Namespace,
    configs: Sequence[CheckedConfig],
    overrides: Sequence[str],
    choices: Choices,
) -> int:
    """Run checked configs at once; returns the exit code of the first that failed."""
    # An ordinary run needs none of these imports.
    from epochal.experiment.config.freeze_jobs import freeze_configs
    from epochal.launch.pool.local_executor import JOB_IMPORTS, LocalExecutor

    _refuse_unsupported(args, choices)
    leases = make_leases(args)
    require_devices(leases, choices)
    jobs = freeze_configs(
        configs,
        overrides=overrides,
        choices=choices,
        command=typed_command(),
        has_test=args.then_test,
    )
    about = f", up to {leases.per_device} at once on each"
    return run_frozen(
        jobs, LocalExecutor(imports=JOB_IMPORTS), leases, is_dry=args.dry_run, about=about
    )


def run_frozen(
    jobs: Sequence[WaitingJob],
    executor: Executor,
    leases: Leases,
    *,
    is_dry: bool,
    about: str = "",
    restart: Restart | None = None,
) -> int:
    """Run frozen jobs and show them, or only print what would start; returns the exit code."""
    from epochal.cli.pages.pool_page import PoolPage, print_ends, print_plan
    from epochal.launch.pool.backlog import never_restart
    from epochal.launch.pool.run_jobs import remove_batch, run_jobs

    if is_dry:
        print_plan(jobs, executor, leases)
        remove_batch(jobs[0].file.parent)
        return 0
    where = ", ".join(one.name for one in leases.devices)
    print(f"{format_count(len(jobs), 'run')} on {where}{about}", flush=True)
    with PoolPage(jobs) as page:
        result = run_jobs(jobs, executor, leases, show=page.show, restart=restart or never_restart)
    print_ends(jobs, result.ends)
    return result.exit_code


def typed_command() -> str:
    """The command line as typed, for records."""
    return decode_typed(shlex.join(command_line_words()))


def _refuse_unsupported(args: argparse.Namespace, choices: Choices) -> None:
    if args.keep_alive:
        _refuse("--keep-alive", "restarts one run only", "use `epochal queue add --retries 3`")
    require_records(choices)
    refuse_gpus(choices)


def require_records(choices: Choices) -> None:
    """Refuse ``--no-file``: nothing would be left of the runs of a pool."""
    if choices.get("no_file"):
        _refuse("--no-file", "results of a pool are read from its records", "leave it out")


def refuse_gpus(choices: Choices) -> None:
    """Refuse to name the devices of a run, since the pool decides where a job runs."""
    what = "the pool gives each run its devices"
    if choices.get("gpus") is not None:
        _refuse("--gpus", what, "--nproc 2 lets each run have two")
    if "," in str(choices.get("device")):
        _refuse("--device", what, "--nproc 2 lets each run have two; --device 1 is preferred")
    num_processes = choices.get("nproc")
    if num_processes is not None and num_processes < 1:
        _refuse("--nproc", f"must be at least 1, got {num_processes}", "use for example 2")
    if choices.get("nnodes") is not None:
        _refuse("--nnodes", what, "write launch: {on: ray, nodes: 2}, and use `epochal launch`")
    if choices.get("debug_rank") is not None:
        _refuse("--debug-rank", what, "run it alone, without a pool")


def _refuse(key: str, what: str, hint: str) -> NoReturn:
    raise ConfigError(Problem(key, what, hint=hint))
