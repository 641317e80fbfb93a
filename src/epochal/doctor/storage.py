"""Checks of a folder for runs: file system, free space, operations, clock."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal import durable
from epochal.doctor.diagnostic import Diagnostic
from epochal.records.folder.machine import find_file_system, is_network_file_system
from epochal.records.layout.os_errors import describe_os_error
from epochal.text.formatting import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TEMPORARY = {
    "tmpfs": "is memory: a reboot deletes everything there",
    "ramfs": "is memory: a reboot deletes everything there",
    "overlay": "is the layer of a container: it is deleted with the container",
}
_LOW_BYTES = 5_000_000_000
_SKEW_SECONDS = 2.0
_OLDEST_TIME = 1_700_000_000.0  # the end of 2023: an earlier clock is wrong


def check_storage(folder: Path) -> Iterator[Diagnostic]:
    """Check the file system of a writable folder."""
    yield _check_kind(folder)
    yield _check_room(folder)
    yield _check_operations(folder)
    yield check_clock(folder)


def _check_kind(folder: Path) -> Diagnostic:
    kind, mount = find_file_system(folder)
    if not kind:
        return Diagnostic("file system", "ok", "unknown: this system does not say")
    what = f"{kind} on {mount}"
    if is_network_file_system(kind):
        hint = "locks and clocks may differ between machines; let one machine work on a run"
        return Diagnostic("file system", "warn", f"{what}, shared over a network", hint)
    if kind in _TEMPORARY:
        hint = "keep runs elsewhere: record.log_dir=PATH"
        return Diagnostic("file system", "warn", f"{what} {_TEMPORARY[kind]}", hint)
    return Diagnostic("file system", "ok", what)


def _check_room(folder: Path) -> Diagnostic:
    usage = shutil.disk_usage(folder)
    what = f"{format_bytes(usage.free)} free of {format_bytes(usage.total)}"
    if usage.free < _LOW_BYTES:
        return Diagnostic(
            "room", "warn", what, "checkpoints need about 3 times the size of weights"
        )
    return Diagnostic("room", "ok", what)


def _check_operations(folder: Path) -> Diagnostic:
    """Replace a file, sync it and its folder, make a link, with the functions that runs use."""
    missing = []
    for name, attempt in {"rename": _try_rename, "link": _try_link}.items():
        try:
            attempt(folder)
        except OSError as error:
            missing.append(f"{name} ({describe_os_error(error)})")
    if missing:
        what = f"cannot do: {', '.join(missing)}"
        if missing[0].startswith("link"):
            hint = "`last` and `best` will be text files instead of links"
            return Diagnostic("abilities", "warn", what, hint)
        return Diagnostic("abilities", "fail", what, "keep runs elsewhere: record.log_dir=PATH")
    return Diagnostic(
        "abilities", "ok", "replaces files at once, syncs files and folders, has links"
    )


def _try_rename(folder: Path) -> None:
    path = folder / "renamed"
    for text in ("old", "new"):
        durable.write_text(path, text)
    if path.read_text() != "new":
        raise OSError("the old content is still there")


def _try_link(folder: Path) -> None:
    path = folder / "link"
    path.symlink_to("renamed")
    if os.readlink(path) != "renamed":  # noqa: PTH115 - the target of the link itself
        raise OSError("it leads elsewhere")


def check_clock(folder: Path) -> Diagnostic:
    """Compare the clock of this machine with that of the file system."""
    now = time.time()
    path = folder / "clock"
    path.touch()
    there = path.stat().st_mtime
    with suppress(OSError):
        path.unlink()
    if now < _OLDEST_TIME:
        shown = time.strftime("%Y-%m-%d", time.gmtime(now))
        return Diagnostic("clock", "warn", f"shows {shown}", "set the clock of this machine")
    skew = there - now
    if abs(skew) > _SKEW_SECONDS:
        what = (
            f"files are dated {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine"
        )
        hint = "let both follow a time server, else runs of other machines may look lost"
        return Diagnostic("clock", "warn", what, hint)
    return Diagnostic("clock", "ok", f"agrees with that of the files within {_SKEW_SECONDS:.0f} s")
