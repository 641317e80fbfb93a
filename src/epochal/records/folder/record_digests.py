"""Digests of the files that a resume reads, checked before the files are used."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from epochal import durable
from epochal.records.folder.reader import find_expanded_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_RUN_DIGEST = "digest"
_CONFIG_DIGESTS = "config_digests"
_PROVENANCE = "provenance.json"


def digest_bytes(data: bytes) -> str:
    """The SHA-256 of a file's content."""
    return hashlib.sha256(data).hexdigest()


def digest_config_files(run_dir: Path) -> dict[str, dict[str, str]]:
    """A fact for ``run.json``: the digests of the files from which a run is built again."""
    paths = [find_expanded_config(run_dir), run_dir / "config" / _PROVENANCE]
    found = [path for path in paths if path is not None and path.is_file()]
    return {_CONFIG_DIGESTS: {path.name: digest_bytes(durable.read_bytes(path)) for path in found}}


def add_digest(run: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of ``run.json`` with a digest of them."""
    plain: Any = durable.decode_json(durable.encode_json(run))
    plain.pop(_RUN_DIGEST, None)
    return {**plain, _RUN_DIGEST: _digest_facts(plain)}


def find_changed_files(run_dir: Path, run: Mapping[str, Any]) -> Iterator[Path]:
    """The files that are missing or differ from what the run wrote.

    None in records of earlier versions, which have no digests.
    """
    recorded = run.get(_RUN_DIGEST)
    if recorded is not None and recorded != _digest_facts(run):
        yield run_dir / "run.json"
    for name, digest in _config_digests(run).items():
        path = run_dir / "config" / name
        try:
            is_same = digest_bytes(durable.read_bytes(path)) == digest
        except OSError:
            is_same = False
        if not is_same:
            yield path


def is_recorded_config(run: Mapping[str, Any], name: str, data: bytes) -> bool:
    """Whether a run wrote ``data`` into a file of its folder ``config``."""
    return _config_digests(run).get(name) == digest_bytes(data)


def _config_digests(run: Mapping[str, Any]) -> Mapping[str, Any]:
    found = run.get(_CONFIG_DIGESTS)
    return found if isinstance(found, dict) else {}


def _digest_facts(run: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in run.items() if name != _RUN_DIGEST}
    return digest_bytes(durable.encode_json(rest))
