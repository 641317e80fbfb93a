"""Whether a kill or a full disk costs a checkpoint here: tried with real processes."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from epochal.inspect.findings import Finding
from epochal.records.manifests import newest_valid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KILLS = 25
SIZE_BYTES = 2_000_000
LIMIT_SECONDS = 25.0
_KEEP = "keep runs elsewhere: record.log_dir=PATH"


def try_kills(
    folder: Path,
    *,
    kills: int = KILLS,
    size: int = SIZE_BYTES,
    limit_seconds: float = LIMIT_SECONDS,
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> Finding:
    """Kill processes that write checkpoints, each at another moment, and look what is left."""
    dice, begun, newest_step, done = random.Random(0), time.monotonic(), 0, 0
    with _scratch(folder, "kill") as scratch:
        while done < kills and (not done or time.monotonic() - begun < limit_seconds):
            acknowledged = _kill_one(scratch, size, newest_step + 1, dice)
            done += 1
            newest, damage = newest_valid(scratch)
            if damage:
                return Finding(
                    "kill", "fail", f"a kill left a damaged checkpoint: {damage[0]}", _KEEP
                )
            if newest is None or newest.step < acknowledged:
                found = "none" if newest is None else str(newest.step)
                what = f"checkpoint {acknowledged} was written, but after a kill it is {found}"
                return Finding("kill", "fail", what, _KEEP)
            newest_step = newest.step  # the last one may not have been acknowledged any more
            tell(done, kills)
    what = f"{done} processes killed while saving, {newest_step} checkpoints, none lost"
    return Finding("kill", "ok", what)


def _kill_one(scratch: Path, size: int, first: int, dice: random.Random) -> int:
    """Let a process write, kill it at some moment; gives the last number it acknowledged."""
    process = _start(scratch, size, "on", first)
    try:
        stream = _stream(process)
        begun = time.monotonic()
        last = int(stream.readline() or 0)
        pace = time.monotonic() - begun
        # Some moment of the next save, which takes about as long as this one.
        time.sleep(dice.random() * min(pace, 0.2))
    finally:
        process.kill()
        rest, complaint = process.communicate()
    whole = rest.decode().splitlines()[: rest.count(b"\n")]
    if not last:
        raise OSError(_last_line(complaint) or "the process that saves ended by itself")
    return int(whole[-1]) if whole else last


def try_full_disk(folder: Path, *, size: int = SIZE_BYTES) -> Finding:
    """Let a save run out of room at several places, and look what is left."""
    limits = [0, 1, 100, 4096, size // 2, size]
    with _scratch(folder, "full") as scratch:
        process = _start(scratch, size, "within", *limits)
        out, complaint = process.communicate()
    if process.returncode != 0 or not out.strip():
        raise OSError(_last_line(complaint) or "the process that saves failed")
    costly = int(out)
    if costly:
        what = f"{costly} of {len(limits)} saves without room left the folder worse than before"
        return Finding("full disk", "fail", what, _KEEP)
    what = f"{len(limits)} saves ran out of room, the checkpoint before them stayed whole"
    return Finding("full disk", "ok", what)


def _start(scratch: Path, size: int, *words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "epochal.inspect.writing", str(scratch), str(size)]
    return subprocess.Popen(
        [*command, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _last_line(text: bytes) -> str:
    """What a process complained about last, without the kind of the error."""
    lines = text.decode(errors="replace").strip().splitlines()
    return re.sub(r"^[\w.]*(Error|Exception): ", "", lines[-1]) if lines else ""


def _stream(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


@contextmanager
def _scratch(folder: Path, name: str) -> Iterator[Path]:
    scratch = folder / name
    scratch.mkdir(parents=True)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
