"""Seals jobs and copies of code with the key of this user, so that no other code is run."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING

from epochal import durable
from epochal.errors import RecordError
from epochal.records.code.code_manifest import CODE_MANIFEST_FILE, find_code_dir
from epochal.records.mail.signing import (
    SIGNATURE,
    KeyUnusableError,
    has_signature,
    is_signed,
    sign,
    write_signed,
)

if TYPE_CHECKING:
    from pathlib import Path

SEAL_FILE = "seal.json"
"""The seal of a run's copy of its code, beside the manifest of the copy."""


def seal_job(file: Path) -> str:
    """The seal of a job's file as it is now.

    Raises:
        RecordError: The key of this user cannot be used.
    """
    try:
        return sign(file, _describe(file))
    except KeyUnusableError as error:
        raise RecordError(f"the job cannot be added: {error}") from error


def is_sealed(file: Path, seal: str) -> bool:
    """Whether this user gave the file this seal, at this place, and it is unchanged since."""
    try:
        return has_signature(seal, file, _describe(file))
    except OSError:
        return False


def seal_code(run_dir: Path, attempt: int = 0) -> None:
    """Note that a run of this user has executed the code that its record has a copy of.

    Without a key, or if the seal cannot be written, the copy stays without one.
    """
    folder = find_code_dir(run_dir, attempt)
    with suppress(OSError, KeyUnusableError):
        write_signed(folder / SEAL_FILE, _describe_code(folder))


def is_code_sealed(run_dir: Path, attempt: int = 0) -> bool:
    """Whether a run of this user wrote the manifest of its code, at this place.

    The manifest has the digests of all files, which ``find_code_damage`` compares.
    """
    folder = find_code_dir(run_dir, attempt)
    seal = folder / SEAL_FILE
    found = durable.find_object(seal)
    try:
        return is_signed(seal, {**_describe_code(folder), SIGNATURE: found.get(SIGNATURE)})
    except OSError:
        return False


def _describe(file: Path) -> dict[str, str]:
    return {"job": _digest(file)}


def _describe_code(folder: Path) -> dict[str, str]:
    return {"code": _digest(folder / CODE_MANIFEST_FILE)}


def _digest(file: Path) -> str:
    return hashlib.sha256(durable.read_bytes(file)).hexdigest()
