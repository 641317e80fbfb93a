"""A process that writes checkpoints until it is killed, or until it may write no more."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

from epochal import durable
from epochal.errors import EpochalError
from epochal.records.manifests import (
    MANIFEST,
    STATE,
    TENSORS,
    Manifest,
    StoredFile,
    encode_manifest,
    find_checkpoints,
    newest_valid,
)

KEPT = 2


def write_one(folder: Path, step: int, data: bytes) -> None:
    """Commit one checkpoint, by the very functions that write those of runs."""
    target = folder / f"step-{step}"
    blobs = {"weights": durable.Blob("U8", (len(data),), data)}
    with durable.staged_dir(target, str(os.getpid())) as staged:
        digest = staged.write_safetensors(TENSORS, blobs)
        size = (staged.path / TENSORS).stat().st_size
        state = b"{}"
        files = {
            TENSORS: StoredFile(size, digest),
            STATE: StoredFile(len(state), staged.write_bytes(STATE, state)),
        }
        manifest = Manifest(path=target, files=files, step=step)
        staged.write_bytes(MANIFEST, encode_manifest(manifest))


def write_on(folder: Path, size: int, first: int) -> None:
    """Write checkpoint after checkpoint, say each number, and keep the last few."""
    data, step = os.urandom(size), first
    durable.remove_stale(folder, lambda owner: True)  # of those that were killed before
    while True:
        write_one(folder, step, data)
        os.write(sys.stdout.fileno(), b"%d\n" % step)
        for old in find_checkpoints(folder)[:-KEPT]:
            durable.remove_tree(old.path, str(os.getpid()))
        step += 1


def write_until_full(folder: Path, size: int, limits: list[int]) -> list[int]:
    """Try to write when files may grow to each limit only; gives the limits that cost something.

    A limit on the size of files fails as a full disk does: in the midst of a write.
    """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    data = os.urandom(size)
    write_one(folder, 0, data)
    costly = []
    for number, limit in enumerate(limits, start=1):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            write_one(folder, number, data)
            has_failed = False
        except (OSError, EpochalError):
            has_failed = True
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        newest, damage = newest_valid(folder)
        entries = [entry.name for entry in folder.iterdir()]
        is_kept = newest is not None and newest.step == 0 and not damage
        if not (has_failed and is_kept and entries == ["step-0"]):
            costly.append(limit)
    return costly


def main(folder: str, size: str, *words: str) -> int:
    """Write on from a first number, or, with several numbers, within limits."""
    kind, numbers = words[0], [int(word) for word in words[1:]]
    if kind == "on":
        write_on(Path(folder), int(size), numbers[0])
    costly = write_until_full(Path(folder), int(size), numbers)
    os.write(sys.stdout.fileno(), b"%d\n" % len(costly))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
