"""Adds experiments of the project, and runs, to the queue, with the changes that a form accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal.launch.queue.queue import Queue
from epochal.web.api.job_queue import find_run_id
from epochal.web.site.api_error import ApiError, not_found
from epochal.web.site.launches import LaunchRequest, check_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from epochal.web.site.launches import Launches
    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site


def _launches(site: Site) -> Launches:
    if site.launches is None:
        raise not_found()
    return site.launches


def get_experiments(site: Site, call: ApiCall) -> dict[str, Any]:
    """The config files of the project."""
    launches = _launches(site)
    found = launches.files()
    return {
        "experiments": [
            {
                "id": one,
                "name": path.stem,
                "path": path.relative_to(launches.project_dir).as_posix(),
            }
            for one, path in found.items()
        ]
    }


def get_form(site: Site, call: ApiCall) -> dict[str, Any]:
    """The form of an experiment, and its mistakes."""
    launches = _launches(site)
    return launches.check(launches.get(call.path["id"]), LaunchRequest())


def check_experiment(site: Site, call: ApiCall) -> dict[str, Any]:
    """The same with changes."""
    launches = _launches(site)
    source = launches.get(call.path["id"])
    return launches.check(source, _request(call), should_build=call.body["build"])


def launch_experiment(site: Site, call: ApiCall) -> dict[str, Any]:
    """Add an experiment to the queue."""
    launches, request = _launches(site), _request(call)
    source = launches.get(call.path["id"])
    name = source.relative_to(launches.project_dir).as_posix()
    return _add(site, "launch", name, source, request, call.body["idempotency_key"])


def get_run_form(site: Site, call: ApiCall) -> dict[str, Any]:
    """The form that runs a run again."""
    return _launches(site).check(site.folder(call.path["id"]), LaunchRequest())


def check_run(site: Site, call: ApiCall) -> dict[str, Any]:
    """The same with changes."""
    source = site.folder(call.path["id"])
    return _launches(site).check(source, _request(call), should_build=call.body["build"])


def rerun(site: Site, call: ApiCall) -> dict[str, Any]:
    """Add a run to the queue again, with changes."""
    run_id = call.path["id"]
    key = call.body["idempotency_key"]
    return _add(site, "rerun", run_id, site.folder(run_id), _request(call), key)


def resume_run(site: Site, call: ApiCall) -> dict[str, Any]:
    """Add a job that resumes a run."""
    launches, run_id = _launches(site), call.path["id"]
    folder = site.folder(run_id)
    jobs = launches.add(
        "resume", run_id, "", {}, lambda note: launches.launcher.resume(folder, note)
    )
    return _jobs_to_json(site, jobs)


def _request(call: ApiCall) -> LaunchRequest:
    body = call.body
    if body["overrides"] and body["text"] is not None:
        raise ApiError(422, "overrides and text: give one of them")
    check_name(body["name"])
    return LaunchRequest(overrides=body["overrides"], text=body["text"], name=body["name"])


def _add(
    site: Site, action: str, what: str, source: Path, request: LaunchRequest, key: str
) -> dict[str, Any]:
    launches = _launches(site)
    jobs = launches.add(
        action,
        what,
        key,
        request.facts,
        lambda note: launches.launcher.add(source, request, note),
    )
    return _jobs_to_json(site, jobs)


def _jobs_to_json(site: Site, ids: Sequence[int]) -> dict[str, Any]:
    queue = Queue(site.index.root)
    found = {job.id: job for job in queue.list_jobs() if job.id in ids}
    return {
        "jobs": [
            {"id": one, "run": find_run_id(found[one], site) if one in found else None}
            for one in ids
        ]
    }
