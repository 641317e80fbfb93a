"""``epochal queue``: experiments that wait, and the worker that runs them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from epochal.cli.arguments import (
    add_config_words,
    add_json_option,
    add_runs_dir_option,
    print_json,
    split_files_and_overrides,
)
from epochal.cli.check_configs import check_configs
from epochal.cli.draw.text_table import format_table
from epochal.cli.pool import (
    add_cluster_options,
    add_pool_options,
    find_executor,
    refuse_gpus,
    typed_command,
)
from epochal.cli.then_test import add_then_test_option, require_test_data
from epochal.errors import ConfigError, Problem, RecordError
from epochal.experiment.config.choices import add_choices, add_options, read_choices
from epochal.launch.queue.queue import Queue
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control
from epochal.text.formatting import format_count, format_seconds

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from epochal.launch.queue.queue import QueuedJob

_ACTIONS = {
    "add": "add experiments, with their config and code as they are now",
    "list": "show the jobs: ended, running, and waiting in the order of their start",
    "top": "move a job to the front",
    "remove": "remove waiting jobs; running ones save and end",
    "pause": "start no more jobs, or not these; running ones continue",
    "unpause": "continue after a pause",
    "drain": "let the workers end after their running jobs",
    "work": "run the waiting jobs on a pool until the queue is empty",
}
_SHOWN_ENDED = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions with their arguments and options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    for name, text in _ACTIONS.items():
        about = text[0].upper() + text[1:] + "."
        one = actions.add_parser(name, help=text, description=about, allow_abbrev=False)
        if name == "add":
            _add_add_arguments(one)
        elif name == "list":
            add_options(one, {"--all": f"also ended jobs before the last {_SHOWN_ENDED}"})
            add_json_option(one)
        elif name == "work":
            add_pool_options(one)
            add_cluster_options(one)
            texts = {
                "--wait": "wait for more jobs instead of ending",
                "--dry-run": "only print what would start where",
            }
            add_options(one, texts)
        elif name != "drain":
            count = {"top": None, "remove": "+"}.get(name, "*")
            one.add_argument("jobs", type=int, nargs=count, metavar="JOB", help="number of a job")
        add_runs_dir_option(one)


def _add_add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_words(parser)
    texts = {
        "--priority N": "jobs with a higher priority start first (default: 0)",
        "--retries N": "start a failed run again from its checkpoint, up to N times (default: 0)",
    }
    add_options(parser, texts, priority=0, retries=0)
    text = "start only after this job or run has finished successfully; may be repeated"
    parser.add_argument("--after", action="append", default=[], metavar="JOB|RUN", help=text)
    add_options(parser, {"--dry-run": "only print what would be added"})
    add_choices(parser)
    add_then_test_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Do the action; returns the exit code."""
    queue = Queue(args.runs_dir)
    if args.action == "add":
        return _add(args, queue)
    if args.action == "work":
        return _work(args, queue)
    if args.action == "list":
        _list(args, queue)
    elif args.action == "drain":
        queue.drain()
        print("all workers end after their running jobs")
    else:
        _change(args.action, args.jobs if isinstance(args.jobs, list) else [args.jobs], queue)
    return 0


def _add(args: argparse.Namespace, queue: Queue) -> int:
    from epochal.experiment.config.freeze_jobs import freeze_configs

    files, overrides = split_files_and_overrides(args.words)
    choices = read_choices(args)
    refuse_gpus(choices)
    if choices.get("no_file"):
        what, hint = "a job without a record cannot be resumed", "leave out --no-file"
        raise ConfigError(Problem("--no-file", what, hint=hint))
    if args.retries < 0:
        raise ConfigError(Problem("--retries", f"cannot be {args.retries}", hint="--retries 3"))
    configs, code = check_configs(files, overrides, choices, outcome="nothing was added")
    if code:
        return code
    require_test_data(args, *configs)
    after = [queue.resolve(name) for name in args.after]
    if args.dry_run:
        for config in configs:
            variant = f" ({config.config.variant})" if config.config.variant else ""
            words = " ".join([f"{config.config.path}{variant}", *overrides])
            print(f"would add {words}, priority {args.priority}")
        return 0
    jobs = freeze_configs(
        configs,
        overrides=overrides,
        choices=choices,
        command=typed_command(),
        home=queue.runs_dir,
        has_test=args.then_test,
    )
    added = queue.add(jobs, priority=args.priority, after=after, retries=args.retries)
    for job in added:
        print(f"added job {job.id}: {job.title}")
    if queue.is_paused:
        print(f"the queue is paused: {epochal_command()} queue unpause")
    elif all(map(_is_orphan, queue.list_jobs("running"))):
        print(f"next: {epochal_command()} queue work")
    return 0


def _list(args: argparse.Namespace, queue: Queue) -> None:
    jobs = queue.list_jobs()
    obstacles = queue.find_obstacles([job for job in jobs if job.state == "waiting"])
    if args.json:
        print_json([_to_json(job, obstacles) for job in jobs])
        return
    ended = [job for job in jobs if job.ended is not None]
    hidden = [] if args.all else ended[:-_SHOWN_ENDED]
    shown = [job for job in jobs if job not in hidden]
    if not jobs:
        print(f"the queue is empty; add jobs with: {epochal_command()} queue add FILE")
        return
    header = ("job", "experiment", "state", "priority", "device", "time", "run or reason")
    print(format_table(header, [_to_row(job, obstacles) for job in shown]))
    if hidden:
        print(f"{format_count(len(hidden), 'earlier job')}: --all shows them")
    if queue.is_paused:
        print(f"the queue is paused: {epochal_command()} queue unpause")


def _to_row(job: QueuedJob, obstacles: dict[int, Any]) -> tuple[str, ...]:
    obstacle = obstacles.get(job.id)
    name = "" if job.run_dir is None else job.run_dir.name
    reason = ": ".join(filter(None, (name, job.error)))
    if job.state == "waiting":
        reason = obstacle.text if obstacle is not None else ("continues " + name if name else "")
        reason += f" after: {job.error}" if job.error else ""
    has_worker = not _is_orphan(job)
    if not has_worker:
        end = f"its worker ended; {epochal_command()} queue work continues it"
        reason = ": ".join(filter(None, (name, end)))
    return (
        str(job.id),
        job.title,
        "stopping" if job.is_unwanted else job.state if has_worker else "lost",
        str(job.priority),
        job.device if job.state != "waiting" else "",
        _format_time(job),
        reason,
    )


def _is_orphan(job: QueuedJob) -> bool:
    from epochal.launch.queue.worker import is_orphan

    return is_orphan(job)


def _format_time(job: QueuedJob) -> str:
    if job.started is None or job.state == "waiting" or _is_orphan(job):
        return ""
    return format_seconds((job.ended or time.time()) - job.started)


def _to_json(job: QueuedJob, obstacles: dict[int, Any]) -> dict[str, Any]:
    obstacle = obstacles.get(job.id)
    names = (
        "id", "title", "state", "priority", "after", "preferred", "retries", "failures", "starts",
        "not_before", "is_paused", "added", "started", "ended", "device", "run_dir", "code",
        "error", "log",
    )  # fmt: skip
    values = {name: getattr(job, name) for name in names}
    obstacle_text = None if obstacle is None else obstacle.text
    return values | {"obstacle": obstacle_text, "has_worker": not _is_orphan(job)}


def _change(action: str, ids: Sequence[int], queue: Queue) -> None:
    if action == "top":
        job = queue.move_to_top(ids[0])
        obstacle = queue.find_obstacle(job)
        but = "" if obstacle is None else f"; it cannot start yet: {obstacle.text}"
        print(f"job {job.id} starts next: {job.title}{but}")
    elif action == "remove":
        for number in ids:
            job = queue.remove(number)
            is_running = job.state == "running"
            print(f"job {number} " + ("saves and ends" if is_running else "is removed"))
    else:
        is_paused = action == "pause"
        chosen: list[int | None] = [*ids] or [None]
        for one in chosen:
            queue.set_paused(is_paused, one)
            name = "the queue" if one is None else f"job {one}"
            print(
                f"{name} is {'paused; running jobs continue' if is_paused else 'no longer paused'}"
            )


def _work(args: argparse.Namespace, queue: Queue) -> int:
    from epochal.cli.pages.pool_page import PoolPage, count_failed, print_plan
    from epochal.launch.pool.pool import Pool
    from epochal.launch.pool.run_jobs import exit_code_of
    from epochal.launch.queue.worker import QueueBacklog, list_ready

    executor, leases = find_executor(args)
    if args.dry_run:
        print_plan(list_ready(queue), executor, leases)
        return 0
    backlog = QueueBacklog(queue)
    known = {job.id for job in queue.list_jobs("failed")}
    if args.wait and not queue.list_jobs("waiting"):
        print("waiting for jobs; Ctrl-C ends this", flush=True)
    with PoolPage() as page:
        pool = Pool(backlog, executor, leases, show=page.show, waits_for_more=args.wait)
        pool.run()
    codes = {entry.waiting.key: entry.end.code for entry in pool.ended if entry.end is not None}
    for job in queue.list_jobs("failed"):
        if job.id not in known and not job.starts:  # its files are gone, or not ours
            codes[job.id] = RecordError.exit_code
            print(escape_control(f"job {job.id} was not started: {job.error}"))
    failed = count_failed(codes.values())
    waiting = queue.list_jobs("waiting")
    text = f"{format_count(len(codes), 'job')}, {failed} failed"
    print(text + (f", {len(waiting)} waiting" if waiting else ""))
    if queue.is_paused:
        print(f"the queue is paused: {epochal_command()} queue unpause")
        return exit_code_of(pool, codes.values())
    obstacles = queue.find_obstacles(waiting)
    for number, obstacle in list(obstacles.items())[:_SHOWN_ENDED]:
        print(f"job {number} cannot start: {obstacle.text}")
    if obstacles:
        command = f"{epochal_command()} queue"
        print(f"`{command} list` shows all jobs, `{command} remove JOB` removes one")
    return exit_code_of(pool, codes.values())
