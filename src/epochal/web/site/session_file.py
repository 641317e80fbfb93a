"""Keeps sessions of browsers in a private file, so that an open page survives a restart.

The file is in the user's own folder, beside the key that signs jobs, and not beside the runs: a
copy of a run folder must not carry sessions, and several users may serve the same runs.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from epochal import durable
from epochal.errors import RecordError
from epochal.launch.jobs.private_files import make_private_dir, write_private
from epochal.records.layout.coerce import as_float, as_mapping
from epochal.records.layout.process import host_name
from epochal.records.mail.signing import KeyUnusableError, find_key_path

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SESSIONS_DIR = "web-sessions"
SESSION_SECONDS = 30 * 24 * 3600.0
"""How long a session lasts after the link was opened."""

_MAX_BYTES = 1 << 20

logger = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True)
class KeptSession:
    """What is known about a session; its cookie is known as a hash only."""

    capabilities: tuple[str, ...]
    expires: float
    """In seconds since 1970."""


@final
class SessionFile:
    """The sessions of one server: of these runs, at this address of this machine.

    Args:
        runs_dir: The folder of the runs.
        address: Where the server listens; servers with another one have other sessions.
    """

    def __init__(self, runs_dir: Path, address: str) -> None:
        self._server = {"host": host_name(), "runs": str(runs_dir.resolve()), "address": address}
        self._has_warned = False

    def find_path(self) -> Path:
        """The file; it may not exist. KeyUnusableError if the user has no home."""
        name = hashlib.sha256("\n".join(self._server.values()).encode("utf-8", "backslashreplace"))
        return find_key_path().parent / SESSIONS_DIR / f"{name.hexdigest()[:32]}.json"

    def read(self) -> dict[str, KeptSession]:
        """The sessions by the hash of their cookie; none if other users could have written them."""
        try:
            with durable.open_regular(self.find_path()) as file:
                if not _is_private(os.fstat(file.fileno())):
                    return {}
                value = durable.decode_json(file.read(_MAX_BYTES))
        except (OSError, ValueError, RecursionError, KeyUnusableError):
            return {}
        found = as_mapping(as_mapping(value).get("sessions"))
        return {digest: one for digest in found if (one := _parse(found[digest])) is not None}

    def write(self, sessions: Mapping[str, KeptSession]) -> None:
        """Replace them; a failure is logged, since the sessions still work until the server ends.

        Files of servers that were not used for so long that their sessions expired are removed.
        """
        content = {
            **self._server,
            "sessions": {
                digest: {"capabilities": list(one.capabilities), "expires": one.expires}
                for digest, one in sessions.items()
            },
        }
        try:
            path = self.find_path()
            durable.make_dir(path.parent.parent, exist_ok=True)
            make_private_dir(path.parent)
            write_private(path, durable.encode_json(content, indent=1))
            _remove_old(path.parent)
        except (OSError, RecordError, KeyUnusableError) as error:
            if not self._has_warned:
                self._has_warned = True
                text = "browsers must open a new link when this server is restarted: %s"
                logger.warning(text, str(error).splitlines()[0])


def _is_private(status: os.stat_result) -> bool:
    if os.name != "posix":
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _parse(value: object) -> KeptSession | None:
    facts = as_mapping(value)
    names: Any = facts.get("capabilities")
    expires = as_float(facts.get("expires"))
    if not isinstance(names, list) or expires is None:
        return None
    return KeptSession(tuple(map(str, names)), expires)


def _remove_old(folder: Path) -> None:
    with suppress(OSError):
        for path in folder.iterdir():
            if path.lstat().st_mtime < time.time() - SESSION_SECONDS:
                path.unlink(missing_ok=True)
