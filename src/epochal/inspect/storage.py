"""Whether a folder can keep runs: what its file system is, can do, and has room for."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal import durable
from epochal.inspect.findings import Finding
from epochal.records.figures import format_bytes
from epochal.records.mounts import find_kind, is_shared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PASSING = {
    "tmpfs": "is memory: what lies there is gone after a restart of the machine",
    "ramfs": "is memory: what lies there is gone after a restart of the machine",
    "overlay": "is the layer of a container: what lies there goes with the container",
}
_LITTLE_BYTES = 5_000_000_000
_SKEW_SECONDS = 2.0
_OLDEST_TIME = 1_700_000_000.0  # the end of 2023: no clock that is right shows less


def look_at_storage(folder: Path) -> Iterator[Finding]:
    """Look at the file system of a folder in which something can be written."""
    yield _look_at_kind(folder)
    yield _look_at_room(folder)
    yield _look_at_abilities(folder)
    yield look_at_clock(folder)


def _look_at_kind(folder: Path) -> Finding:
    kind, mount = find_kind(folder)
    if not kind:
        return Finding("file system", "ok", "unknown: this system does not say")
    what = f"{kind} on {mount}"
    if is_shared(kind):
        hint = "locks and clocks may differ between machines; let one machine work on a run"
        return Finding("file system", "warn", f"{what}, shared over a network", hint)
    if kind in _PASSING:
        hint = "keep runs elsewhere: record.log_dir=PATH"
        return Finding("file system", "warn", f"{what} {_PASSING[kind]}", hint)
    return Finding("file system", "ok", what)


def _look_at_room(folder: Path) -> Finding:
    usage = shutil.disk_usage(folder)
    what = f"{format_bytes(usage.free)} free of {format_bytes(usage.total)}"
    if usage.free < _LITTLE_BYTES:
        return Finding("room", "warn", what, "checkpoints need about 3 times the size of weights")
    return Finding("room", "ok", what)


def _look_at_abilities(folder: Path) -> Finding:
    """Replace a file, sync it and its folder, lay a link: all by the functions that runs use."""
    lacking = []
    for name, attempt in {"rename": _try_rename, "link": _try_link}.items():
        try:
            attempt(folder)
        except OSError as error:
            lacking.append(f"{name} ({(error.strerror or str(error)).lower()})")
    if lacking:
        what = f"cannot do: {', '.join(lacking)}"
        if lacking[0].startswith("link"):
            hint = "`last` and `best` will be text files instead of links"
            return Finding("abilities", "warn", what, hint)
        return Finding("abilities", "fail", what, "keep runs elsewhere: record.log_dir=PATH")
    return Finding("abilities", "ok", "replaces files at once, syncs files and folders, has links")


def _try_rename(folder: Path) -> None:
    path = folder / "renamed"
    for text in ("old", "new"):
        durable.write_text(path, text)
    if path.read_text() != "new":
        raise OSError("the old content is still there")


def _try_link(folder: Path) -> None:
    path = folder / "link"
    path.symlink_to("renamed")
    if os.readlink(path) != "renamed":  # noqa: PTH115 - the words of the link itself
        raise OSError("it leads elsewhere")


def look_at_clock(folder: Path) -> Finding:
    """Compare the clock of this machine with that of the files."""
    now = time.time()
    path = folder / "clock"
    path.touch()
    there = path.stat().st_mtime
    with suppress(OSError):
        path.unlink()
    if now < _OLDEST_TIME:
        shown = time.strftime("%Y-%m-%d", time.gmtime(now))
        return Finding("clock", "warn", f"shows {shown}", "set the clock of this machine")
    skew = there - now
    if abs(skew) > _SKEW_SECONDS:
        what = (
            f"files are dated {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine"
        )
        hint = "let both follow a time server, else runs of other machines may look lost"
        return Finding("clock", "warn", what, hint)
    return Finding("clock", "ok", f"agrees with that of the files within {_SKEW_SECONDS:.0f} s")
