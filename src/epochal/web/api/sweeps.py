"""The sweeps of the project: progress, trials, the best ones, and important parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from epochal.web.site.api_error import ApiError, not_found

if TYPE_CHECKING:
    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site


MAX_TRIALS = 10_000


def get_sweeps(site: Site, call: ApiCall) -> dict[str, Any]:
    """All sweeps, the newest first."""
    found = [] if site.sweeps is None else [dict(one) for one in site.sweeps.summaries()]
    return {"sweeps": found[::-1]}


def get_sweep(site: Site, call: ApiCall) -> dict[str, Any]:
    """One sweep with its trials."""
    found = None if site.sweeps is None else site.sweeps.read(call.path["id"])
    if found is None:
        raise not_found()
    return dict(found)


def stop_sweep(site: Site, call: ApiCall) -> dict[str, Any]:
    """Ask a sweep to stop: its trials save, and can be continued."""
    get_sweep(site, call)
    if site.sweeps is None or not site.sweeps.stop(call.path["id"]):
        raise ApiError(409, "nothing runs this sweep, so there is nothing to stop")
    return get_sweep(site, call)


def add_trials(site: Site, call: ApiCall) -> dict[str, Any]:
    """Search with more trials; the server runs them if nothing else does."""
    get_sweep(site, call)
    sweep_id = call.path["id"]
    if site.sweeps is not None and not site.sweeps.add_trials(sweep_id, call.body["trials"]):
        if site.worker is None:
            raise ApiError(
                409, "nothing runs this sweep", f"run `epochal sweep {sweep_id}` to continue it"
            )
        site.worker.start_sweep(sweep_id)
    return get_sweep(site, call)
