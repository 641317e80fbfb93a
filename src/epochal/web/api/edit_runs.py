"""Changes of runs: README, labels, archiving, deleting."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from epochal.errors import RecordError
from epochal.records.folder.labels import change_labels, check_labels, read_labels
from epochal.records.folder.readme import README_FILE, parse_readme, write_readme
from epochal.records.layout.process import read_text
from epochal.records.prune import RetentionPolicy, find_linked_runs, plan_pruning, remove_run
from epochal.records.query.query_runs import QueryResult, RunQuery, query_runs
from epochal.records.removable import why_not_removable
from epochal.web.site.api_error import ApiError, not_found

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.index import Index
    from epochal.records.prune import PrunePlan
    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site

MAX_README = 200_000


def write_run_readme(site: Site, call: ApiCall) -> dict[str, Any]:
    """Replace the README of a run, unless it changed since the page read it."""
    folder = site.folder(call.path["id"])
    before = call.body["before"]
    if before is not None and read_text(folder / README_FILE) != before:
        raise ApiError(409, "the README changed meanwhile", "reload the page, and edit it again")
    try:
        write_readme(folder, parse_readme(call.body["text"]))
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise ApiError(409, f"the README cannot be written: {reason}") from error
    site.index.refresh()
    return {"readme": read_text(folder / README_FILE)}


def label_runs(site: Site, call: ApiCall) -> dict[str, Any]:
    """Add and remove labels of runs."""
    return _mark(site, call, add=check_labels(call.body["add"]), remove=call.body["remove"])


def archive_runs(site: Site, call: ApiCall) -> dict[str, Any]:
    """Leave runs out of lists, or list them again."""
    return _mark(site, call, is_archived=call.body["archived"])


def _mark(site: Site, call: ApiCall, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - passed on
    folders = _find_known(site, call)
    changed = []
    for run_id, folder in folders.items():
        before = read_labels(folder)
        if change_labels(folder, **changes) != before:
            changed.append(run_id)
    site.index.refresh()
    return {"changed": changed}


def _find_known(site: Site, call: ApiCall) -> dict[str, Path]:
    """The folders of the runs that there are: another page may have deleted some meanwhile."""
    found = site.index.find_all(call.body["ids"])
    if not found:
        raise not_found()
    return {one: found[one] for one in dict.fromkeys(call.body["ids"]) if one in found}


def delete_runs(site: Site, call: ApiCall) -> dict[str, Any]:
    """Delete runs; those that run, or that others need, stay, and missing ones count as deleted."""
    root = site.index.root
    folders = _find_known(site, call)
    site.index.refresh()
    plan, paths = site.index.ask(lambda index: _plan(index, {*folders.values()}))
    kept = [{"id": row["run"], "why": why} for row, why in plan.protected]
    deleted = [one for one in dict.fromkeys(call.body["ids"]) if one not in folders]
    for row in plan.to_delete:
        try:
            remove_run(paths[row["id"]], root)
        except RecordError as error:
            what = str(error).partition("\n")[0].rpartition(": ")[2]
            kept.append({"id": row["run"], "why": what})
        else:
            deleted.append(row["run"])
    site.index.refresh()
    return {"deleted": deleted, "kept": kept}


def _plan(index: Index, folders: set[Path]) -> tuple[PrunePlan, dict[int, Path]]:
    whole = query_runs(index, RunQuery())
    rows = [row for row in whole.rows if whole.path(row) in folders]
    plan = plan_pruning(
        whole,
        QueryResult(index, rows),
        RetentionPolicy(),
        now=datetime.now(UTC),
        why_not=lambda folder: why_not_removable(folder, index.root),
        linked=find_linked_runs(index.root),
    )
    return plan, {row["id"]: whole.path(row) for row in rows}
