"""Seals frozen jobs with the key of this user: a copied folder cannot bring jobs that run code."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from epochal import durable
from epochal.errors import RecordError
from epochal.records.mail.signature import KeyUnusableError, has_signature, sign

if TYPE_CHECKING:
    from pathlib import Path


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


def _describe(file: Path) -> dict[str, str]:
    return {"job": hashlib.sha256(durable.read_bytes(file)).hexdigest()}
