"""Writes checkpoint folders atomically, verifies and reads them, and deletes old ones."""

from __future__ import annotations

import json
import os
import re
import zlib
from datetime import datetime
from typing import TYPE_CHECKING, Any

import torch

from epochal import durable
from epochal.checkpoint.retention import choose_deletions
from epochal.checkpoint.serialize import SerializedState, deserialize_state, serialize_state
from epochal.checkpoint.sharded import read_whole
from epochal.checkpoint.tensor_storage import SAFETENSORS_DTYPES, get_tensor_bytes
from epochal.errors import CheckpointError
from epochal.records.folder.checkpoint_manifests import (
    DAMAGED_SUFFIX,
    LINK_NAMES,
    MANIFEST_FIELDS,
    MANIFEST_FILE,
    SHARD_PREFIX,
    STATE_FILE,
    TENSORS_FILE,
    CheckpointManifest,
    StoredFile,
    encode_manifest,
    find_checkpoints,
    rank_by_score,
    read_manifest,
    verify_checkpoint,
)
from epochal.records.layout.os_errors import raising_record_errors
from epochal.records.layout.process import host_name, is_process_gone, process_token

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor

_NAME = re.compile(r"[^/\\\0]{1,150}")


def no_files(staged: Path) -> Mapping[str, StoredFile]:
    """Return no files of other processes, for a checkpoint of one process."""
    return {}


def write_checkpoint(
    folder: Path,
    name: str,
    state: Mapping[str, object] | SerializedState,
    facts: Mapping[str, Any],
    *,
    confirm: Callable[[], None] = lambda: None,
    add_files: Callable[[Path], Mapping[str, StoredFile]] = no_files,
) -> CheckpointManifest:
    """Write a checkpoint into ``folder``; when this returns, it survives a power failure.

    Args:
        folder: The folder of checkpoints; created if missing.
        name: The name of the checkpoint; a number is added if it exists.
        state: A tree per part, or the result of ``snapshot_to_host``.
        facts: Fields of the manifest, without ``files`` and ``format``.
        confirm: Called before the checkpoint gets its name; an error removes what was written.
        add_files: Called with the folder before it gets its name; returns what other processes
            have written there with ``write_shard``.
    """
    if (
        not _NAME.fullmatch(name)
        or name.startswith(".")
        or DAMAGED_SUFFIX in name
        or name in LINK_NAMES
    ):
        raise CheckpointError(f"{name!r} cannot be the name of a checkpoint\n  use 'step-{{step}}'")
    unknown = facts.keys() - MANIFEST_FIELDS
    assert not unknown, f"unknown fields of a manifest: {sorted(unknown)}"
    taken = state if isinstance(state, SerializedState) else serialize_state(state)
    text = json.dumps(taken.plain, separators=(",", ":"), allow_nan=False).encode()
    blobs = {key: _to_blob(tensor) for key, tensor in taken.tensors.items()}
    with raising_record_errors(CheckpointError):
        durable.make_dir(folder, exist_ok=True)
        return _commit(_find_free_path(folder, name), text, blobs, facts, confirm, add_files)


def _commit(
    target: Path,
    text: bytes,
    blobs: Mapping[str, durable.Blob],
    facts: Mapping[str, Any],
    confirm: Callable[[], None],
    add_files: Callable[[Path], Mapping[str, StoredFile]],
) -> CheckpointManifest:
    with durable.staged_dir(target, get_process_identity()) as staged:
        digest = staged.write_safetensors(TENSORS_FILE, blobs)
        size = (staged.path / TENSORS_FILE).stat().st_size
        files = {
            TENSORS_FILE: StoredFile(size, digest),
            STATE_FILE: StoredFile(len(text), staged.write_bytes(STATE_FILE, text)),
        }
        files |= add_files(staged.path)
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        known = {"time": now, "torch": torch.__version__, **facts}
        manifest = CheckpointManifest(path=target, files=files, **known)
        staged.write_bytes(MANIFEST_FILE, encode_manifest(manifest))
        confirm()
    return manifest


def write_shard(staged: Path, rank: int, shards: Mapping[str, Tensor]) -> dict[str, StoredFile]:
    """Write the parts of one process into the folder of a checkpoint that has no name yet."""
    name = f"{SHARD_PREFIX}{rank:05}.safetensors"
    blobs = {key: _to_blob(tensor) for key, tensor in shards.items()}
    with raising_record_errors(CheckpointError):
        digest = durable.StagedDir(staged).write_safetensors(name, blobs)
        return {name: StoredFile((staged / name).stat().st_size, digest)}


def read_checkpoint(
    path: Path, *, keeps_shards: bool = False, is_verified: bool = False
) -> tuple[dict[str, Any], CheckpointManifest]:
    """The tree of every part, and the manifest; verifies sizes and SHA-256 first.

    Args:
        path: The folder.
        keeps_shards: Leave tensors that were saved in parts as ``ShardedValue``, which reads only
            what is needed; the files must stay. Else they are put together.
        is_verified: Another process has verified it.
    """
    damage = verify_checkpoint(path) if path.is_dir() and not is_verified else None
    if damage is not None or not path.is_dir():
        what = str(damage) if damage else f"{path}: no such checkpoint"
        raise CheckpointError(f"{what}\n  `ls {path.parent}` shows the other checkpoints")
    manifest = read_manifest(path)
    plain = json.loads(durable.read_bytes(path / STATE_FILE))
    shards = _open_shards(path, manifest)
    state = deserialize_state(plain, _read_tensors(path / TENSORS_FILE), shards)
    return state if keeps_shards or not shards else read_whole(state), manifest


def read_caches(path: Path) -> dict[str, Any]:
    """The caches in a checkpoint that was verified; reads its tensors only if there are any."""
    plain = json.loads(durable.read_bytes(path / STATE_FILE))
    if not plain.get("caches"):
        return {}
    caches: dict[str, Any] = deserialize_state(plain["caches"], _read_tensors(path / TENSORS_FILE))
    return caches


def mark_as_damaged(path: Path) -> Path:
    """Rename a damaged checkpoint, so that it is not read again; nothing is deleted."""
    target = path.with_name(path.name + DAMAGED_SUFFIX)
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}{DAMAGED_SUFFIX}-{number}")
    with raising_record_errors(CheckpointError):
        durable.rename(path, target)
    return target


def prune_checkpoints(
    folder: Path, *, keep_last: int | None, keep_best: int, keep_regular: bool = False
) -> list[str]:
    """Update the links and remove old checkpoints; returns the names of those removed.

    Call it only after a checkpoint was committed.
    """
    found = find_checkpoints(folder)
    old = choose_deletions(
        found, keep_last=keep_last, keep_best=keep_best, keep_regular=keep_regular
    )
    with raising_record_errors(CheckpointError):
        _update_links(folder, found)
        for manifest in old:
            durable.remove_tree(manifest.path, get_process_identity())
    return [manifest.name for manifest in old]


def _update_links(folder: Path, found: list[CheckpointManifest]) -> None:
    targets = {"last": found[-1:], "best": rank_by_score(found)[:1]}
    for link, chosen in targets.items():
        for manifest in chosen:
            path = folder / link
            if not path.is_symlink() or str(path.readlink()) != manifest.name:
                durable.replace_link(path, manifest.name)


def remove_leftovers(folder: Path) -> list[str]:
    """Remove leftovers of killed processes in ``folder``; call it before the first save."""
    with raising_record_errors(CheckpointError):
        return durable.remove_stale(folder, _is_stale)


def get_process_identity() -> str:
    """Distinguishes this process from all others, including later ones with its pid."""
    return f"{os.getpid()}.{_stamp(os.getpid())}"


def _stamp(pid: int) -> str:
    return f"{zlib.crc32(process_token(pid).encode()):08x}"


def _is_stale(name: str) -> bool:
    # Leftovers of this process are stale, too: it is not saving yet.
    number, _, stamp = name.partition(".")
    pid = int(number) if number.isdigit() else 0
    if not pid or pid == os.getpid() or is_process_gone(pid, host=host_name()):
        return True
    return bool(stamp) and _stamp(pid) != stamp


def _find_free_path(folder: Path, name: str) -> Path:
    target, number = folder / name, 1
    while target.exists() or target.is_symlink():
        number += 1
        target = folder / f"{name}~{number}"
    return target


def _to_blob(tensor: Tensor) -> durable.Blob:
    return durable.Blob(
        SAFETENSORS_DTYPES[tensor.dtype], tuple(tensor.shape), lambda: get_tensor_bytes(tensor)
    )


def _open_shards(path: Path, manifest: CheckpointManifest) -> dict[str, Any]:
    """The parts of tensors by name and place; each is read when it is needed."""
    from safetensors import SafetensorError, safe_open

    found: dict[str, Any] = {}
    for name in (name for name in manifest.files if name.startswith(SHARD_PREFIX)):
        try:
            durable.require_regular(path / name)
            opened: Any = safe_open(path / name, framework="pt")  # stays open while it is read
            file = opened.__enter__()
            found |= {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - no mapping
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(f"{path / name}: cannot be read: {str(error).lower()}") from error
    return found


def _read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        durable.require_regular(path)
        with safe_open(path, framework="pt") as file:
            names: list[str] = file.keys()
            # Cloned, so that nothing depends on the file afterwards.
            return {name: file.get_tensor(name).clone() for name in names}
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {str(error).lower()}") from error
