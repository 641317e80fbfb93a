"""The process of the crash tests: writes checkpoints until it is killed or out of space."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

from epochal import durable
from epochal.errors import EpochalError
from epochal.records.folder.checkpoint_manifests import (
    MANIFEST_FILE,
    STATE_FILE,
    TENSORS_FILE,
    CheckpointManifest,
    StoredFile,
    encode_manifest,
    find_checkpoints,
    find_newest_checkpoint,
)

NUM_KEPT = 2


def write_checkpoint(folder: Path, step: int, data: bytes) -> None:
    """Write one checkpoint with the functions that runs use."""
    target = folder / f"step-{step}"
    blobs = {"weights": durable.Blob("U8", (len(data),), data)}
    with durable.staged_dir(target, str(os.getpid())) as staged:
        digest = staged.write_safetensors(TENSORS_FILE, blobs)
        size = (staged.path / TENSORS_FILE).stat().st_size
        state = b"{}"
        files = {
            TENSORS_FILE: StoredFile(size, digest),
            STATE_FILE: StoredFile(len(state), staged.write_bytes(STATE_FILE, state)),
        }
        manifest = CheckpointManifest(path=target, files=files, step=step)
        staged.write_bytes(MANIFEST_FILE, encode_manifest(manifest))


def write_forever(folder: Path, size: int, first: int) -> None:
    """Write checkpoints, print the step of each, and keep the last few."""
    data, step = os.urandom(size), first
    durable.remove_stale(folder, lambda owner: True)  # of processes that were killed before
    while True:
        write_checkpoint(folder, step, data)
        os.write(sys.stdout.fileno(), b"%d\n" % step)
        for old in find_checkpoints(folder)[:-NUM_KEPT]:
            durable.remove_tree(old.path, str(os.getpid()))
        step += 1


def write_until_full(folder: Path, size: int, limits: list[int]) -> list[int]:
    """Write with each limit on the file size; returns the limits that damaged something.

    Such a limit fails in the middle of a write, as a full disk does.
    """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    data = os.urandom(size)
    write_checkpoint(folder, 0, data)
    damaging = []
    for number, limit in enumerate(limits, start=1):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            write_checkpoint(folder, number, data)
            has_failed = False
        except (OSError, EpochalError):
            has_failed = True
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        newest, damage = find_newest_checkpoint(folder)
        entries = [entry.name for entry in folder.iterdir()]
        is_kept = newest is not None and newest.step == 0 and not damage
        if not (has_failed and is_kept and entries == ["step-0"]):
            damaging.append(limit)
    return damaging


def main(folder: str, size: str, *words: str) -> int:
    """Write ``forever`` from a first step, or once with each of several ``limits``."""
    kind, numbers = words[0], [int(word) for word in words[1:]]
    if kind == "forever":
        write_forever(Path(folder), int(size), numbers[0])
    damaging = write_until_full(Path(folder), int(size), numbers)
    os.write(sys.stdout.fileno(), b"%d\n" % len(damaging))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
