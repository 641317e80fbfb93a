"""The queue of jobs and the devices they run on; stopping a run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psutil

from epochal import durable
from epochal.launch.pool.gpus import find_gpus
from epochal.launch.pool.pool import read_run_file
from epochal.launch.queue.queue import Queue
from epochal.launch.queue.worker import is_orphan
from epochal.records.layout.lease import LEASE_FILE, WATCH_SECONDS, is_owner_alive
from epochal.records.layout.os_errors import describe_os_error
from epochal.records.layout.process import host_name
from epochal.records.layout.stop_request import STOP_REQUESTED, write_stop_request
from epochal.web.site.api_error import ApiError, not_found

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.launch.queue.queue import Obstacle, QueuedJob
    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site

_MAX_ENDED = 50
_USE_SECONDS = 0.1
"""How long the use of the CPU is measured."""


def get_queue(site: Site, call: ApiCall) -> dict[str, Any]:
    """The jobs: ended ones first, then running ones, then waiting ones in the order of start."""
    queue = Queue(site.index.root)
    jobs = queue.list_jobs()
    ended = [job for job in jobs if job.ended is not None]
    hidden = {job.id for job in ended[:-_MAX_ENDED]}
    obstacles = queue.find_obstacles([job for job in jobs if job.state == "waiting"])
    shown = [_to_json(job, obstacles.get(job.id), site) for job in jobs if job.id not in hidden]
    is_worked = site.worker is not None and site.worker.is_alive
    return {"is_paused": queue.is_paused, "is_worked": is_worked, "jobs": shown}


def find_run_id(job: QueuedJob, site: Site) -> str | None:
    """The id of a job's run, as soon as it has a folder that this server shows."""
    folder = _find_folder(job)
    return None if folder is None or _is_elsewhere(folder, site) else folder.name


def _find_folder(job: QueuedJob) -> Path | None:
    folder = read_run_file(job.file.with_suffix(".run")) if job.ended is None else None
    return folder or job.run_dir


def _is_elsewhere(folder: Path, site: Site) -> bool:
    return not folder.is_relative_to(site.index.root.absolute())


def _to_json(job: QueuedJob, obstacle: Obstacle | None, site: Site) -> dict[str, Any]:
    names = (
        "id", "title", "state", "priority", "retries", "failures", "is_paused", "added", "started",
        "ended", "device", "error",
    )  # fmt: skip
    folder = _find_folder(job)
    return {name: getattr(job, name) for name in names} | {
        "is_stopping": job.is_unwanted,
        "has_worker": not is_orphan(job),
        "run": find_run_id(job, site),
        "elsewhere": str(folder.parents[2]) if folder and _is_elsewhere(folder, site) else None,
        "seconds": None if job.started is None else (job.ended or time.time()) - job.started,
        "obstacle": None if obstacle is None else obstacle.text,
    }


def move_to_top(site: Site, call: ApiCall) -> dict[str, Any]:
    """Let a waiting job start next."""
    queue = Queue(site.index.root)
    (number,) = _numbers(queue, call.body["ids"][:1])
    queue.move_to_top(number)
    return get_queue(site, call)


def move_job(site: Site, call: ApiCall) -> dict[str, Any]:
    """Let a waiting job start before another one, or last."""
    queue, before = Queue(site.index.root), call.body["before"]
    (number,) = _numbers(queue, [call.body["id"]])
    queue.move(number, None if before is None else _numbers(queue, [before])[0])
    return get_queue(site, call)


def remove_jobs(site: Site, call: ApiCall) -> dict[str, Any]:
    """Remove waiting jobs; running ones save and end."""
    queue = Queue(site.index.root)
    for number in _numbers(queue, call.body["ids"]):
        queue.remove(number)
    return get_queue(site, call)


def pause_jobs(site: Site, call: ApiCall) -> dict[str, Any]:
    """Start nothing any more, or not these jobs."""
    return _set_paused(site, call, is_paused=True)


def unpause_jobs(site: Site, call: ApiCall) -> dict[str, Any]:
    """Continue after a pause."""
    return _set_paused(site, call, is_paused=False)


def _set_paused(site: Site, call: ApiCall, *, is_paused: bool) -> dict[str, Any]:
    queue = Queue(site.index.root)
    chosen: list[int | None] = [*_numbers(queue, call.body["ids"])]
    for number in chosen or [None]:
        queue.set_paused(is_paused, number)
    return get_queue(site, call)


def _numbers(queue: Queue, texts: list[str]) -> list[int]:
    """The numbers of jobs that exist; ApiError for any other text."""
    known = {str(job.id): job.id for job in queue.list_jobs()}
    if not {*texts} <= known.keys():
        raise not_found()
    return [known[text] for text in texts]


def get_devices(site: Site, call: ApiCall) -> dict[str, Any]:
    """The devices of this machine, their memory and use, and the jobs on them."""
    running: dict[str, list[int]] = {}
    for job in Queue(site.index.root).list_jobs("running"):
        running.setdefault(job.device, []).append(job.id)
    memory = psutil.virtual_memory()
    found: list[dict[str, Any]] = []
    for number, gpu in enumerate(find_gpus()):
        free, total = _read_memory(gpu.read_memory)
        own: dict[str, Any] = {"name": f"cuda:{number}", "title": gpu.name}
        own |= {"free": free, "total": total, "use": gpu.read_use()}
        found.append(own | {"jobs": running.get(f"cuda:{number}", [])})
    cores = psutil.cpu_count() or 1
    cpu: dict[str, Any] = {"name": "cpu", "title": f"{cores} cores", "cores": cores}
    cpu |= {"free": memory.available, "total": memory.total}
    cpu |= {"use": psutil.cpu_percent(_USE_SECONDS), "jobs": running.get("cpu", [])}
    found.append(cpu)
    return {"host": host_name(), "devices": found}


def _read_memory(read: Any) -> tuple[int | None, int | None]:  # noqa: ANN401 - of a driver
    try:
        free, total = read()
    except RuntimeError:  # the driver does not tell
        return None, None
    return free, total


def stop_run(site: Site, call: ApiCall) -> dict[str, Any]:
    """Ask a run to save and end; it looks for such requests every two seconds."""
    folder = site.folder(call.path["id"])
    if not is_owner_alive(folder, durable.find_object(folder / LEASE_FILE)):
        raise ApiError(409, "the run is not running, so there is nothing to stop")
    # No signal: the record may be a file of others that names any process.
    try:
        write_stop_request(folder, f"{STOP_REQUESTED}: on the web page")
    except OSError as error:
        raise ApiError(409, f"the request cannot be written: {describe_os_error(error)}") from error
    return {"within_seconds": WATCH_SECONDS}
