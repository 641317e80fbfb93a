"""The sweeps beside the runs: progress, trials, the best ones, and what mattered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from epochal.web.api_error import not_found

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from epochal.web.routes import ApiCall
    from epochal.web.site import Site


class SweepReader(Protocol):
    """Reads sweeps; the command line gives the real one, which needs more than this package."""

    def summaries(self) -> Sequence[Mapping[str, Any]]:
        """Each sweep in a few facts, the newest last."""

    def read(self, sweep_id: str) -> Mapping[str, Any] | None:
        """One sweep with its trials, if there is one."""


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
