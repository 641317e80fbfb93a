"""The route table: every route of the server, who may call it, and what it takes.

A route exists only as a row of this table, so none can be forgotten by the checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from epochal.records.folder.labels import MAX_LABELS, MAX_LENGTH
from epochal.records.project.result_tables import MAX_NAME
from epochal.records.project.table_content import MAX_COLUMNS, MAX_TEXT
from epochal.records.project.table_export import TableFormat
from epochal.web.api.compare_runs import (
    MAX_COMPARED,
    MAX_SCATTERED,
    compare_runs,
    find_metrics,
    scatter_runs,
)
from epochal.web.api.download import download_run, download_weights
from epochal.web.api.edit_runs import (
    MAX_README,
    archive_runs,
    delete_runs,
    label_runs,
    write_run_readme,
)
from epochal.web.api.job_queue import (
    get_devices,
    get_queue,
    move_job,
    move_to_top,
    pause_jobs,
    remove_jobs,
    stop_run,
    unpause_jobs,
)
from epochal.web.api.launching import (
    check_experiment,
    check_run,
    get_experiments,
    get_form,
    get_run_form,
    launch_experiment,
    rerun,
    resume_run,
)
from epochal.web.api.list_runs import GROUPS, MAX_ROWS, get_columns, list_runs
from epochal.web.api.live_events import MAX_WATCHED, open_events
from epochal.web.api.mailbox import get_mail, mark_mail
from epochal.web.api.result_tables import (
    create_table,
    delete_table,
    get_table,
    get_table_export,
    get_tables,
    write_table,
)
from epochal.web.api.run_record import (
    MAX_LOG_BYTES,
    get_checkpoints,
    get_code,
    get_code_file,
    get_config,
    get_log,
    get_media,
    get_media_list,
    get_run,
    get_time,
    search_log,
)
from epochal.web.api.series import AXES, MAX_BUCKETS, get_series, get_sparklines, get_system
from epochal.web.api.sign_in import close_session, get_session, open_session
from epochal.web.api.sweeps import MAX_TRIALS, add_trials, get_sweep, get_sweeps, stop_sweep
from epochal.web.openapi import describe_api
from epochal.web.site.route import MAX_INTEGER, ApiField, ApiRoute
from epochal.web.site.static_files import get_asset, get_page

if TYPE_CHECKING:
    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site

_MAX_IDS = 1000
_IDS = ApiField(name="ids", kind="texts", required=True, least=1, most=_MAX_IDS, length=300)
_SOME_IDS = ApiField(name="ids", kind="texts", most=_MAX_IDS, length=20)
_CHANGES = (
    ApiField(name="overrides", kind="values"),
    ApiField(name="text", length=100_000),
    ApiField(name="name", default="", length=60),
)
_BUILD = ApiField(name="build", kind="boolean", default=False)
_KEY = ApiField(name="idempotency_key", required=True, length=100)
_JOB_ID = ApiField(name="id", required=True, length=20)
_RANK = ApiField(name="rank", kind="integer", default=0, most=100_000)
_POINTS = ApiField(name="points", kind="integer", default=800, least=1, most=MAX_BUCKETS)
_CHART = (
    ApiField(name="x", default="step", choices=AXES),
    _POINTS,
    ApiField(name="packed", kind="boolean", default=False),
)
_CURVES = (
    ApiField(name="name", kind="texts", required=True, least=1, most=200, length=500),
    ApiField(name="from", kind="number", least=-MAX_INTEGER),
    ApiField(name="to", kind="number", least=-MAX_INTEGER),
    *_CHART,
)
_LIST = (
    ApiField(name="where", default=""),
    ApiField(name="sort", default=""),
    ApiField(name="search", default=""),
    ApiField(name="columns", default="", length=8000),
    ApiField(name="offset", kind="integer", default=0),
    ApiField(name="limit", kind="integer", default=200, least=1, most=MAX_ROWS),
    ApiField(name="group", default="", choices=(*GROUPS, "")),
    ApiField(name="archived", kind="boolean", default=False),
    ApiField(name="trials", kind="boolean", default=True),
)


def _runs(least: int, most: int) -> ApiField:
    return ApiField(
        name="run", kind="texts", required=least > 0, least=least, most=most, length=300
    )


def _labels(name: str) -> ApiField:
    return ApiField(name=name, kind="texts", most=MAX_LABELS, length=MAX_LENGTH)


def get_openapi(site: Site, call: ApiCall) -> dict[str, Any]:
    """The description of this API."""
    return describe_api(ROUTES, site.version)


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute(
        method="POST",
        path="/api/session",
        access="public",
        answer=open_session,
        summary="exchange the code of the printed link for a session",
        body=(ApiField(name="code", required=True, length=200),),
    ),
    ApiRoute(
        method="GET",
        path="/api/session",
        access="read",
        answer=get_session,
        summary="what this session may do",
        is_quick=True,
    ),
    ApiRoute(
        method="DELETE",
        path="/api/session",
        access="read",
        answer=close_session,
        summary="end this session",
    ),
    ApiRoute(
        method="GET",
        path="/api/openapi.json",
        access="read",
        answer=get_openapi,
        summary="this description",
        is_quick=True,
    ),
    ApiRoute(
        method="GET",
        path="/api/columns",
        access="read",
        answer=get_columns,
        summary="all names that a query of runs can use",
    ),
    ApiRoute(
        method="GET",
        path="/api/runs",
        access="read",
        answer=list_runs,
        summary="runs that a query selects, sorts and groups",
        query=_LIST,
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}",
        access="read",
        answer=get_run,
        summary="the facts of one run",
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}/series",
        access="read",
        answer=get_series,
        summary="curves of one run",
        query=_CURVES,
    ),
    ApiRoute(
        method="GET",
        path="/api/series",
        access="read",
        answer=get_series,
        summary="curves of several runs",
        query=(_runs(1, MAX_WATCHED), *_CURVES),
    ),
    ApiRoute(
        method="GET",
        path="/api/sparklines",
        access="read",
        answer=get_sparklines,
        summary="a few points of one metric of many runs",
        query=(_runs(1, 250), ApiField(name="name", required=True, length=500)),
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}/config",
        access="read",
        answer=get_config,
        summary="the config of a run, and who set each value",
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}/code",
        access="read",
        answer=get_code,
        summary="the files of the code of a run",
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}/code/{file}",
        access="read",
        answer=get_code_file,
        summary="one file of the code of a run",
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}/log",
        access="read",
        answer=get_log,
        summary="a part of the text log of a run",
        query=(
            _RANK,
            ApiField(name="after", kind="integer"),
            ApiField(name="limit", kind="integer", default=65_536, least=1, most=MAX_LOG_BYTES),
        ),
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}/log/search",
        access="read",
        answer=search_log,
        summary="lines of the text log of a run that contain a text",
        query=(_RANK, ApiField(name="q", required=True, length=200)),
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}/media",
        access="read",
        answer=get_media_list,
        summary="the files that a run logged",
    ),
    ApiRoute(
        method="GET",
        path="/api/media/{id}/{item}",
        access="read",
        answer=get_media,
        summary="one file that a run logged",
        type="application/octet-stream",
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}/checkpoints",
        access="read",
        answer=get_checkpoints,
        summary="the checkpoints of a run",
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}/time",
        access="read",
        answer=get_time,
        summary="where the time of a run went",
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}/system",
        access="read",
        answer=get_system,
        summary="use of CPU, memory, disk and GPUs of a run",
        query=(_POINTS,),
    ),
    ApiRoute(
        method="GET",
        path="/api/compare",
        access="read",
        answer=compare_runs,
        summary="how runs differ",
        query=(_runs(2, MAX_COMPARED),),
    ),
    ApiRoute(
        method="GET",
        path="/api/events",
        access="read",
        answer=open_events,
        summary="changes as they happen, as server-sent events",
        query=(_runs(0, MAX_WATCHED),),
        is_quick=True,
        type="text/event-stream",
    ),
    ApiRoute(
        method="GET",
        path="/api/mail",
        access="read",
        answer=get_mail,
        summary="mails about runs",
    ),
    ApiRoute(
        method="POST",
        path="/api/mail/read",
        access="edit",
        answer=mark_mail,
        summary="mark mails as read, unread or archived",
        body=(
            _IDS,
            ApiField(name="read", kind="boolean", default=True),
            ApiField(name="archived", kind="boolean"),
        ),
    ),
    ApiRoute(
        method="PUT",
        path="/api/runs/{id}/readme",
        access="edit",
        answer=write_run_readme,
        summary="replace the README of a run",
        body=(
            ApiField(name="text", required=True, length=MAX_README),
            ApiField(name="before", length=MAX_README),
        ),
    ),
    ApiRoute(
        method="POST",
        path="/api/runs/label",
        access="edit",
        answer=label_runs,
        summary="add and remove labels of runs",
        body=(_IDS, *(_labels(name) for name in ("add", "remove"))),
    ),
    ApiRoute(
        method="POST",
        path="/api/runs/archive",
        access="edit",
        answer=archive_runs,
        summary="leave runs out of lists, or list them again",
        body=(_IDS, ApiField(name="archived", kind="boolean", required=True)),
    ),
    ApiRoute(
        method="POST",
        path="/api/runs/delete",
        access="edit",
        answer=delete_runs,
        summary="delete runs",
        body=(_IDS,),
    ),
    ApiRoute(
        method="GET",
        path="/api/tables",
        access="read",
        answer=get_tables,
        summary="the result tables of the project",
    ),
    ApiRoute(
        method="POST",
        path="/api/tables",
        access="edit",
        answer=create_table,
        summary="make a result table",
        body=(ApiField(name="name", required=True, length=MAX_NAME),),
    ),
    ApiRoute(
        method="GET",
        path="/api/tables/{name}",
        access="read",
        answer=get_table,
        summary="a result table with the current values of its runs",
    ),
    ApiRoute(
        method="PUT",
        path="/api/tables/{name}",
        access="edit",
        answer=write_table,
        summary="replace the content of a result table",
        body=(
            ApiField(name="version", kind="integer", required=True),
            ApiField(
                name="columns", kind="texts", required=True, most=MAX_COLUMNS, length=MAX_TEXT
            ),
            ApiField(name="rows", kind="cells", required=True),
        ),
    ),
    ApiRoute(
        method="DELETE",
        path="/api/tables/{name}",
        access="edit",
        answer=delete_table,
        summary="remove a result table",
    ),
    ApiRoute(
        method="GET",
        path="/api/tables/{name}/export",
        access="read",
        answer=get_table_export,
        summary="a result table as Markdown, LaTeX or CSV",
        query=(ApiField(name="format", default="markdown", choices=get_args(TableFormat)),),
    ),
    ApiRoute(
        method="GET",
        path="/api/queue",
        access="read",
        answer=get_queue,
        summary="the jobs of the queue",
    ),
    *(
        ApiRoute(
            method="POST",
            path=f"/api/queue/{name}",
            access="launch",
            answer=answer,
            summary=summary,
            body=(body,),
        )
        for name, answer, summary, body in (
            ("top", move_to_top, "let a job start next", _IDS),
            ("remove", remove_jobs, "remove waiting jobs; running ones save and end", _IDS),
            ("pause", pause_jobs, "pause jobs, or the queue", _SOME_IDS),
            ("unpause", unpause_jobs, "continue jobs, or the queue", _SOME_IDS),
        )
    ),
    ApiRoute(
        method="GET",
        path="/api/devices",
        access="read",
        answer=get_devices,
        summary="devices of this machine, and the jobs on them",
    ),
    ApiRoute(
        method="POST",
        path="/api/runs/{id}/stop",
        access="launch",
        answer=stop_run,
        summary="let a run save and end",
    ),
    ApiRoute(
        method="GET",
        path="/api/sweeps",
        access="read",
        answer=get_sweeps,
        summary="the sweeps beside the runs",
    ),
    ApiRoute(
        method="GET",
        path="/api/sweeps/{id}",
        access="read",
        answer=get_sweep,
        summary="one sweep with its trials",
    ),
    ApiRoute(
        method="GET",
        path="/api/experiments",
        access="launch",
        answer=get_experiments,
        summary="the config files of the project",
    ),
    ApiRoute(
        method="GET",
        path="/api/experiments/{id}/form",
        access="launch",
        answer=get_form,
        summary="the values of an experiment that can be changed",
    ),
    ApiRoute(
        method="POST",
        path="/api/experiments/{id}/check",
        access="launch",
        answer=check_experiment,
        summary="check an experiment with some values changed",
        body=(*_CHANGES, _BUILD),
    ),
    ApiRoute(
        method="POST",
        path="/api/experiments/{id}/launch",
        access="launch",
        answer=launch_experiment,
        summary="add an experiment to the queue",
        body=(*_CHANGES, _KEY),
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}/form",
        access="launch",
        answer=get_run_form,
        summary="the values of a run that can be changed when it runs again",
    ),
    ApiRoute(
        method="POST",
        path="/api/runs/{id}/check",
        access="launch",
        answer=check_run,
        summary="check a run with some values changed",
        body=(*_CHANGES, _BUILD),
    ),
    ApiRoute(
        method="POST",
        path="/api/runs/{id}/rerun",
        access="launch",
        answer=rerun,
        summary="add a run to the queue again, with some values changed",
        body=(*_CHANGES, _KEY),
    ),
    ApiRoute(
        method="POST",
        path="/api/runs/{id}/resume",
        access="launch",
        answer=resume_run,
        summary="add a job to the queue that resumes a run",
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}/download",
        access="read",
        answer=download_run,
        summary="the record of a run without its checkpoints, as .tar.gz",
        type="application/octet-stream",
    ),
    ApiRoute(
        method="GET",
        path="/api/runs/{id}/checkpoints/{name}/weights",
        access="read",
        answer=download_weights,
        summary="the weights of a checkpoint, as .safetensors",
        type="application/octet-stream",
    ),
    ApiRoute(
        method="GET",
        path="/api/compare/metrics",
        access="read",
        answer=find_metrics,
        summary="what some runs are called, the metrics of any of them, and curves of the first",
        query=(
            _runs(1, MAX_WATCHED),
            ApiField(name="first_curves", kind="boolean", default=False),
            *_CHART,
        ),
    ),
    ApiRoute(
        method="GET",
        path="/api/compare/scatter",
        access="read",
        answer=scatter_runs,
        summary="the settings and metrics of many runs, and which settings mattered",
        query=(
            _runs(0, MAX_SCATTERED),
            ApiField(name="where", default=""),
            ApiField(name="columns", default="", length=8000),
            ApiField(name="metric", default="", length=500),
        ),
    ),
    ApiRoute(
        method="POST",
        path="/api/sweeps/{id}/stop",
        access="launch",
        answer=stop_sweep,
        summary="let the trials of a sweep save and end",
    ),
    ApiRoute(
        method="POST",
        path="/api/sweeps/{id}/add",
        access="launch",
        answer=add_trials,
        summary="search with more trials",
        body=(ApiField(name="trials", kind="integer", required=True, least=1, most=MAX_TRIALS),),
    ),
    ApiRoute(
        method="POST",
        path="/api/queue/move",
        access="launch",
        answer=move_job,
        summary="let a job start before another one, or last",
        body=(_JOB_ID, ApiField(name="before", length=20)),
    ),
    ApiRoute(
        method="GET",
        path="/assets/{name}",
        access="public",
        answer=get_asset,
        summary="a script, style or font of the page",
        is_quick=True,
    ),
    *(
        ApiRoute(
            method="GET",
            path=path,
            access="public",
            answer=get_page,
            summary="the page",
            is_page=True,
            is_quick=True,
        )
        for path in ("/", "/{page}", "/{page}/{id}", "/{page}/{id}/{part}")
    ),
)
"""The rows, in the order of matching."""
