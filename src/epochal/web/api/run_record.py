"""The parts of one run: facts, config, code, log, media, checkpoints, time."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from epochal.durable.beneath import open_beneath, read_beneath
from epochal.records.code.code_manifest import find_code_dir, read_manifest
from epochal.records.code.verify import find_code_damage
from epochal.records.compare.code import is_binary
from epochal.records.folder.checkpoint_manifests import (
    TENSORS_FILE,
    find_checkpoints,
    rank_by_score,
)
from epochal.records.folder.crash import find_crash
from epochal.records.folder.folder import CHECKPOINTS_DIR, read_parent
from epochal.records.folder.labels import read_labels
from epochal.records.folder.media import read_media
from epochal.records.folder.provenance import format_origin, get_newest_origins
from epochal.records.folder.reader import (
    desc_of,
    find_expanded_config,
    find_logs,
    find_monitor,
    read_time_spent,
    seconds_of,
    step_of,
    tag_of,
)
from epochal.records.folder.tracker_links import read_tracker_urls
from epochal.records.layout.coerce import as_float, as_mapping, as_text, iter_leaves
from epochal.records.metrics.summary import summarise_series
from epochal.records.metrics.time_spent import (
    compute_time_shares,
    describe_attempts,
    describe_device_time,
    suggest_speedup,
)
from epochal.text.escape import escape_control
from epochal.web.site.api_error import ApiError, not_found
from epochal.web.site.file_id import make_file_id
from epochal.web.site.numbers import to_json_value
from epochal.web.site.route import RawAnswer

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

    from epochal.records.code.code_manifest import CodeFile
    from epochal.records.folder.media import Media
    from epochal.records.folder.reader import RunRecord
    from epochal.web.site.route import ApiCall
    from epochal.web.site.site import Site

MAX_CODE_BYTES = 1 << 20
MAX_LOG_BYTES = 1 << 20
MAX_MEDIA_BYTES = 32 << 20
_MAX_VERIFIED_BYTES = 64 << 20
_MAX_SEARCHED_BYTES = 64 << 20
_MAX_HITS = 200
_MAX_LINE = 2000
_ANSI = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-_])")
_SHOWN_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "txt": "text/plain; charset=utf-8",
    "md": "text/plain; charset=utf-8",
    "csv": "text/plain; charset=utf-8",
    "tsv": "text/plain; charset=utf-8",
    "json": "application/json",
}
_MAGIC = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}


def get_run(site: Site, call: ApiCall) -> dict[str, Any]:
    """The facts of one run."""
    record = site.record(call.path["id"])
    run, summary = record.run, record.summary
    name, mode = find_monitor(record)
    parent = read_parent(run)
    machine = as_mapping(run.get("machine"))
    marks = read_labels(record.path)
    return {
        "id": summary.id,
        "tag": tag_of(record),
        "project": summary.project,
        "runner": summary.runner,
        "status": summary.status,
        "reason": summary.reason,
        "started": summary.started,
        "ended": summary.ended,
        "seconds": seconds_of(record),
        "step": step_of(record),
        "epoch": summary.epoch,
        "seed": run.get("seed"),
        "monitor": {"name": name, "mode": mode} if name else None,
        "best": to_json_value(as_float(record.result.get("best"))),
        "metrics": _metrics(record, name, mode),
        "attempts": [
            {
                "attempt": one.attempt,
                "cause": one.cause,
                "started": one.started,
                "step": one.step,
                "changed": list(one.changed),
            }
            for one in record.attempts
        ],
        "parent": None if parent is None else {"id": parent.run, "kind": parent.kind},
        "readme": record.readme,
        "desc": desc_of(record),
        "labels": list(marks.labels),
        "archived": marks.is_archived,
        "error": _error(record),
        "command": as_text(run.get("command")),
        "device": run.get("device"),
        "git": as_mapping(machine.get("git")),
        "host": as_text(record.status.get("host")),
        "urls": read_tracker_urls(record.path),
        "damage": list(summary.damage),
    }


def _metrics(record: RunRecord, monitor: str, mode: str | None) -> dict[str, Any]:
    final = as_mapping(record.result.get("metrics"))
    found: dict[str, Any] = {}
    for name, one in summarise_series(record.path).items():
        own = mode if name == monitor else "min" if name.endswith("loss") else None
        best = {"min": one.low, "max": one.high}.get(own or "")
        figures = {
            "last": final.get(name, one.last),
            "low": one.low,
            "high": one.high,
            "best": best,
        }
        plain = {key: to_json_value(value) for key, value in figures.items()}
        found[name] = plain | {"mode": own, "step": one.last_step, "count": one.count}
    for name, value in final.items():
        last = {"last": to_json_value(value), "low": None, "high": None, "best": None}
        found.setdefault(name, last | {"mode": None, "step": record.summary.step, "count": 0})
    return found


def _error(record: RunRecord) -> dict[str, str] | None:
    kind = as_text(record.result.get("exception_type"))
    message = as_text(record.result.get("message"))
    traceback = as_text(record.result.get("traceback"))
    if record.summary.status == "lost" and (crash := find_crash(record.path)):
        what, traceback = f"{crash.fault} in {crash.lines}", crash.text
        return {"what": clean_text(what), "traceback": clean_text(traceback)}
    if not (kind or message or traceback):
        return None
    what = f"{kind}: {message}" if kind else message
    return {"what": clean_text(what), "traceback": clean_text(traceback)}


def get_config(site: Site, call: ApiCall) -> dict[str, Any]:
    """Every value of the config and who set it, and the expanded file."""
    record = site.record(call.path["id"])
    values = [
        {
            "key": key,
            "value": to_json_value(origin.get("value")),
            "default": origin.get("layer") == "default",
            "layer": as_text(origin.get("layer")),
            "place": format_origin(origin),
        }
        for key, origin in get_newest_origins(record.provenance).items()
    ]
    if not values:  # provenance.json is lost
        values = [
            {"key": key, "value": to_json_value(value), "default": False, "layer": "", "place": ""}
            for key, value in iter_leaves(record.expanded)
        ]
    path, text = find_expanded_config(record.path), ""
    if path is not None:
        with suppress(OSError):
            data = read_beneath(record.path, f"config/{path.name}", max_bytes=MAX_CODE_BYTES)
            text = data.decode("utf-8", "replace")
    return {"values": values, "text": text, "format": path.suffix[1:] if path else ""}


def get_code(site: Site, call: ApiCall) -> dict[str, Any]:
    """The files of the code copy, and what is not as recorded."""
    record = site.record(call.path["id"])
    attempt = record.summary.attempt
    manifest = read_manifest(record.path, attempt)
    files = () if manifest is None else manifest.files
    others = () if manifest is None else manifest.others
    is_verified = manifest is None or manifest.num_bytes <= _MAX_VERIFIED_BYTES
    return {
        "files": [
            {"id": make_file_id(file.path), "path": file.path, "size": file.size} for file in files
        ],
        "left_out": [{"path": one.path, "kind": one.kind} for one in others],
        "altered": find_code_damage(record.path, attempt) if is_verified else {},
        "is_verified": is_verified,
    }


def get_code_file(site: Site, call: ApiCall) -> dict[str, Any]:
    """The text of one file of the code copy."""
    record = site.record(call.path["id"])
    manifest = read_manifest(record.path, record.summary.attempt)
    files = () if manifest is None else manifest.files
    file = next((one for one in files if make_file_id(one.path) == call.path["file"]), None)
    if file is None:
        raise not_found()
    data = _read_code(record, file)
    is_text = not is_binary(data)
    return {
        "path": file.path,
        "is_text": is_text,
        "is_cut": file.size > MAX_CODE_BYTES,
        "text": data.decode("utf-8", "replace") if is_text else "",
    }


def _read_code(record: RunRecord, file: CodeFile) -> bytes:
    folder = find_code_dir(record.path, record.summary.attempt)
    try:
        # The path is from a manifest that others may have written.
        with open_beneath(record.path, f"{folder.relative_to(record.path)}/{file.place}") as opened:
            return opened.read(MAX_CODE_BYTES)
    except OSError:
        raise not_found() from None


def clean_text(text: str) -> str:
    """A text of a log without commands for terminals."""
    return escape_control(_ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def _open_log(record: RunRecord, rank: int) -> BufferedReader:
    path = find_logs(record).get(rank)
    if path is None:
        raise not_found()
    try:
        # The name is from a config that others may have written.
        return open_beneath(record.path, os.path.relpath(path, record.path).replace(os.sep, "/"))
    except (OSError, ValueError):
        raise not_found() from None


def get_log(site: Site, call: ApiCall) -> dict[str, Any]:
    """A part of a text log, in whole lines; without ``after`` the last part."""
    record = site.record(call.path["id"])
    ranks = sorted(find_logs(record))
    after, limit = call.query["after"], call.query["limit"]
    if not ranks:
        return {"text": "", "start": 0, "next": 0, "size": 0, "ranks": []}
    with _open_log(record, call.query["rank"]) as file:
        size = os.fstat(file.fileno()).st_size
        start = max(0, size - limit) if after is None else min(after, size)
        file.seek(start)
        data = file.read(limit)
    if after is None and start:  # begin with a whole line
        cut = data.find(b"\n") + 1
        start, data = start + cut, data[cut:]
    if start + len(data) < size:  # more follows: end with a whole line
        data = data[: data.rfind(b"\n") + 1] or data
    text = clean_text(data.decode("utf-8", "replace"))
    return {"text": text, "start": start, "next": start + len(data), "size": size, "ranks": ranks}


def search_log(site: Site, call: ApiCall) -> dict[str, Any]:
    """The lines of a log that contain a text, in upper or lower case."""
    wanted = call.query["q"].casefold()
    hits, read = [], 0
    if not wanted.strip():
        raise ApiError(422, "q: nothing to search for", "type a word of the log")
    with _open_log(site.record(call.path["id"]), call.query["rank"]) as file:
        size = os.fstat(file.fileno()).st_size
        # A line of a damaged log may be as long as the file.
        for number, line in enumerate(iter(lambda: file.readline(MAX_LOG_BYTES), b""), start=1):
            text = line.decode("utf-8", "replace")
            if wanted in text.casefold():
                shown = clean_text(text.rstrip("\n")[:_MAX_LINE])
                hits.append({"line": number, "at": read, "text": shown})
            read += len(line)
            if len(hits) >= _MAX_HITS or read >= _MAX_SEARCHED_BYTES:
                break
    return {"hits": hits, "is_cut": read < size}


def _media_id(one: Media) -> str:
    return make_file_id(one.kind, one.name, one.step)


def get_media_list(site: Site, call: ApiCall) -> dict[str, Any]:
    """The images, texts and other files that a run logged."""
    folder = site.folder(call.path["id"])
    items = [
        {
            "id": _media_id(one),
            "name": one.name,
            "step": one.step,
            "kind": one.kind,
            "type": _SHOWN_TYPES.get(one.suffix.lower(), "application/octet-stream"),
            "time": one.time,
        }
        for one in read_media(folder)
    ]
    return {"items": items}


def get_media(site: Site, call: ApiCall) -> RawAnswer:
    """One logged file; what is not a picture or a text is a download."""
    folder = site.folder(call.path["id"])
    found = (one for one in read_media(folder) if _media_id(one) == call.path["item"])
    one = next(found, None)
    if one is None:
        raise not_found()
    data = _read_media_file(folder, one)
    kind = _SHOWN_TYPES.get(one.suffix.lower(), "")
    if not data.startswith(_MAGIC.get(kind, b"")):
        kind = ""
    headers = {"content-security-policy": "sandbox; default-src 'none'; frame-ancestors 'none'"}
    if not kind:
        suffix = re.sub(r"[^A-Za-z0-9]", "", one.suffix)[:10] or "bin"
        headers["content-disposition"] = f'attachment; filename="{_media_id(one)}.{suffix}"'
    return RawAnswer(content=data, type=kind or "application/octet-stream", headers=headers)


def _read_media_file(folder: Path, one: Media) -> bytes:
    try:
        # The path is from events.jsonl, which others may have written.
        name = one.path.relative_to(folder).as_posix()
        return read_beneath(folder, name, max_bytes=MAX_MEDIA_BYTES)
    except (OSError, ValueError):
        raise not_found() from None


def get_checkpoints(site: Site, call: ApiCall) -> dict[str, Any]:
    """The checkpoints of a run, the oldest first."""
    found = find_checkpoints(site.folder(call.path["id"]) / CHECKPOINTS_DIR)
    best = next(iter(rank_by_score(found)), None)
    items = [
        {
            "name": one.name,
            "step": one.step,
            "epoch": one.epoch,
            "time": one.time,
            "reason": one.reason,
            "bytes": sum(file.size for file in one.files.values()),
            "metric": to_json_value(one.metrics.get(one.monitor)),
            "is_best": one is best,
            "is_last": one is found[-1],
            "has_weights": TENSORS_FILE in one.files,
        }
        for one in found
    ]
    return {"items": items}


def get_time(site: Site, call: ApiCall) -> dict[str, Any]:
    """Where the time of a run went."""
    record = site.record(call.path["id"])
    spent = read_time_spent(record)
    return {
        "seconds": spent.seconds,
        "parts": [
            {"name": one.name, "seconds": one.seconds, "share": one.share, "note": one.note}
            for one in compute_time_shares(spent.times)
        ],
        "advice": suggest_speedup(spent.times, record.device_time),
        "device": describe_device_time(record.device_time),
        "attempts": describe_attempts(spent, len(record.attempts)),
    }
