"""Writes files of a record without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal import durable
from epochal.records.folder.record_digests import add_digest
from epochal.records.secrets import redact, redact_tree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """As ``durable.write_text``, without secrets."""
    durable.write_text(path, redact(text))


def write_json(path: Path, value: object) -> None:
    """As ``durable.write_json``, without secrets."""
    durable.write_json(path, redact_tree(value))


def write_run(path: Path, facts: Mapping[str, object]) -> None:
    """Put the facts of a run at ``path``, with their digest."""
    durable.write_json(path, add_digest(redact_tree(dict(facts))))


def encode_line(value: Mapping[str, object]) -> bytes:
    """As ``durable.encode_line``, without secrets."""
    return durable.encode_line(redact_tree(value))


def append_line(path: Path, value: Mapping[str, object]) -> None:
    """As ``durable.append_line``, without secrets."""
    durable.append_line(path, redact_tree(value))
