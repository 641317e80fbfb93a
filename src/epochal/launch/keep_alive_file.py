"""The file of a command with ``--keep-alive``: it outlives supervisors and reboots."""

from __future__ import annotations

import hashlib
import os
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.errors import RecordError
from epochal.records.folder import redacted
from epochal.records.folder.folder import slugify
from epochal.records.layout.process import (
    describe_process,
    is_on_this_machine,
    is_owner_gone,
    utc_now,
)
from epochal.records.secrets import redact_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FOLDER = Path(".epochal")


@final
@dataclass(frozen=True, slots=True)
class KeepAliveFile:
    """The file of one supervised command; it exists until the work is done or given up."""

    path: Path

    @property
    def run_file(self) -> Path:
        """Where the run's process writes the path of its folder."""
        return self.path.with_suffix(".run")

    @property
    def exists(self) -> bool:
        """Whether an earlier supervisor left work."""
        return self.path.exists()

    def read_run(self) -> Path | None:
        """The folder of the run, relative if it is below the current one; None if it has none."""
        text = durable.find_text(self.run_file).strip()
        folder = Path(text)
        if not text or not folder.is_dir():
            return None
        here = Path.cwd()
        return folder.relative_to(here) if here in folder.parents else folder

    @contextmanager
    def claimed(self, command: Sequence[str]) -> Iterator[None]:
        """Make this process the supervisor of the command in a block, by a lock.

        Raises:
            RecordError: Another living process supervises it.
        """
        owner, is_locked = durable.find_object(self.path), durable.is_locked(self.path)
        is_free = is_locked is False and is_on_this_machine(owner) and "namespace" in owner
        if is_locked or not (is_free or is_owner_gone(owner)):
            raise RecordError(
                f"keep-alive: process {owner.get('pid')} on {owner.get('host')} supervises this "
                f"command already\n  stop it first, or delete {self.path} if it is surely gone"
            )
        self._make_folder()
        facts = {"command": list(command), "time": utc_now()} | describe_process(os.getpid())
        with closing(durable.LockedFile(self.path, redact_tree(facts))):
            yield

    def create(self, command: Sequence[str]) -> None:
        """Note that there is work for a later supervisor."""
        if not self.exists:
            self._make_folder()
            redacted.write_json(self.path, {"command": list(command), "time": utc_now()})

    def remove(self) -> None:
        """Remove it: the work is done or given up."""
        self.path.unlink(missing_ok=True)
        self.run_file.unlink(missing_ok=True)

    def _make_folder(self) -> None:
        if not self.path.parent.is_dir():
            durable.make_dir(self.path.parent)


def find_keep_alive_file(name: str, command: Sequence[str]) -> KeepAliveFile:
    """The file of a command in the current folder; the same command has the same file."""
    text = "\0".join([str(Path.cwd()), *command])
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    stem = f"{slugify(name, default='run')}-{digest}"
    return KeepAliveFile(_FOLDER.absolute() / "keep-alive" / f"{stem}.json")
