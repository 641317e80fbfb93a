"""Crash tests with real processes: whether a kill or a full disk loses a checkpoint here."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from epochal.doctor.diagnostic import Diagnostic
from epochal.records.folder.checkpoint_manifests import find_newest_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KILLS = 25
SIZE_BYTES = 2_000_000
LIMIT_SECONDS = 25.0
_HINT = "keep runs elsewhere: record.log_dir=PATH"


def check_kills(
    folder: Path,
    *,
    kills: int = KILLS,
    size: int = SIZE_BYTES,
    limit_seconds: float = LIMIT_SECONDS,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> Diagnostic:
    """Kill processes at random moments while they save, and verify the checkpoints."""
    rng, started, newest_step, done = random.Random(0), time.monotonic(), 0, 0
    with _scratch(folder, "kill") as scratch:
        while done < kills and (not done or time.monotonic() - started < limit_seconds):
            acknowledged = _kill_one(scratch, size, newest_step + 1, rng)
            done += 1
            newest, damage = find_newest_checkpoint(scratch)
            if damage:
                return Diagnostic(
                    "kill", "fail", f"a kill left a damaged checkpoint: {damage[0]}", _HINT
                )
            if newest is None or newest.step < acknowledged:
                found = "none" if newest is None else str(newest.step)
                what = f"checkpoint {acknowledged} was written, but after a kill it is {found}"
                return Diagnostic("kill", "fail", what, _HINT)
            newest_step = newest.step  # it may be newer than the acknowledged one
            tell(done, kills)
    what = f"{done} processes killed while saving, {newest_step} checkpoints, none lost"
    return Diagnostic("kill", "ok", what)


def _kill_one(scratch: Path, size: int, first: int, rng: random.Random) -> int:
    """Let a process save until it is killed; returns the last step that it acknowledged."""
    process = _start(scratch, size, "forever", first)
    try:
        assert process.stdout is not None
        started = time.monotonic()
        last = int(process.stdout.readline() or 0)
        pace = time.monotonic() - started
        # A random moment of the next save, which takes about as long as this one.
        time.sleep(rng.random() * min(pace, 0.2))
    finally:
        process.kill()
        rest, errors = process.communicate()
    whole = rest.decode().splitlines()[: rest.count(b"\n")]
    if not last:
        raise OSError(_last_line(errors) or "the process that saves ended early")
    return int(whole[-1]) if whole else last


def check_full_disk(folder: Path, *, size: int = SIZE_BYTES) -> Diagnostic:
    """Let saves run out of space at several points, and verify the checkpoint before them."""
    limits = [0, 1, 100, 4096, size // 2, size]
    with _scratch(folder, "full") as scratch:
        process = _start(scratch, size, "limits", *limits)
        out, errors = process.communicate()
    if process.returncode != 0 or not out.strip():
        raise OSError(_last_line(errors) or "the process that saves failed")
    damaged = int(out)
    if damaged:
        what = f"{damaged} of {len(limits)} saves on a full disk damaged the folder"
        return Diagnostic("full disk", "fail", what, _HINT)
    what = f"{len(limits)} saves ran out of space, the checkpoint before them stayed intact"
    return Diagnostic("full disk", "ok", what)


def _start(scratch: Path, size: int, *words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "epochal.doctor.checkpoint_writer", str(scratch), str(size)]
    return subprocess.Popen(
        [*command, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _last_line(text: bytes) -> str:
    """The last line of stderr, without the type of the error."""
    lines = text.decode(errors="replace").strip().splitlines()
    return re.sub(r"^[\w.]*(Error|Exception): ", "", lines[-1]) if lines else ""


@contextmanager
def _scratch(folder: Path, name: str) -> Iterator[Path]:
    scratch = folder / name
    scratch.mkdir(parents=True)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
