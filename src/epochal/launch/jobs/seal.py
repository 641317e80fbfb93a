"""Seals frozen jobs with a key of this user, so that a copied folder cannot bring jobs to run."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from epochal import durable
from epochal.errors import RecordError
from epochal.launch.jobs.private import make_private_dir, write_private

_KEY_BYTES = 32


def seal_job(file: Path) -> str:
    """The seal of a job's file as it is now; the key is created if it is missing.

    Raises:
        RecordError: The file or the key cannot be read or written.
    """
    try:
        return _seal(file.read_bytes(), _read_key() or _create_key())
    except OSError as error:
        raise RecordError(
            f"{_key_path()}: the key of the queue cannot be used: {error.strerror}\n"
            "  set XDG_STATE_HOME to a folder that you can write"
        ) from error


def is_sealed(file: Path, seal: str) -> bool:
    """Whether this user gave the file this seal, and it is unchanged since."""
    try:
        data, key = file.read_bytes(), _read_key()
    except OSError:
        return False
    return key is not None and hmac.compare_digest(_seal(data, key), seal)


def _seal(data: bytes, key: bytes) -> str:
    return hmac.new(key, data, hashlib.sha256).hexdigest()


def _key_path() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "epochal" / "queue.key"


def _read_key() -> bytes | None:
    try:
        key = _key_path().read_bytes()
    except FileNotFoundError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _create_key() -> bytes:
    """A new key; if another process is quicker, that one's."""
    path = _key_path()
    make_private_dir(path.parent)
    with durable.locked(path.parent):
        if not path.exists():
            write_private(path, secrets.token_bytes(_KEY_BYTES))
    key = _read_key()
    if key is None:
        raise RecordError(f"{path}: is damaged\n  remove it, and add the jobs again")
    return key
