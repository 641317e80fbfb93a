"""Every operation of a save is interrupted once: by a kill and by disk errors."""

from __future__ import annotations

import dataclasses
import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scene import check_links, clean, kept_after, newest, save, start, visible

from epochal import durable
from epochal.durable import system
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

KILL = 0
FAULTS = {
    "kill": (KILL, True),
    "EIO once": (errno.EIO, False),
    "EIO from then on": (errno.EIO, True),
    "ENOSPC once": (errno.ENOSPC, False),
    "ENOSPC from then on": (errno.ENOSPC, True),
    "EDQUOT once": (errno.EDQUOT, False),
    "EDQUOT from then on": (errno.EDQUOT, True),
}
"""An error, and whether later operations fail too."""


class Killed(BaseException):
    """The process is dead: no further operation happens."""


class Interrupting:
    """Operations whose number ``at`` fails; after a kill, all later ones fail too."""

    def __init__(self, *, at: int, code: int, lasting: bool) -> None:
        self.count = 0
        self.paths: list[Path] = []
        self._at, self._code, self._is_lasting = at, code, lasting
        real = durable.Operations()
        self.operations = durable.Operations(
            **{
                field.name: self._guard(field.name, getattr(real, field.name))
                for field in dataclasses.fields(real)
            }
        )

    @property
    def has_failed(self) -> bool:
        return self.count > self._at

    def _guard(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            number, self.count = self.count, self.count + 1
            self.paths += [path for path in args if isinstance(path, Path)]
            if number == self._at or (number > self._at and self._is_lasting):
                self._fail(name, real, args)
            return real(*args)

        return call

    def _fail(self, name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if name == "close":  # the kernel releases the file in any case
            real(*args)
        if name == "write":  # a part was written
            real(args[0], memoryview(args[1])[: len(args[1]) // 2])
        if self._code == KILL:
            raise Killed
        if self.count - 1 == self._at or name in ("open", "write", "fsync", "mkdir", "symlink"):
            raise OSError(self._code, os.strerror(self._code))


def attempt(folder: Path, step: int, faults: Interrupting) -> bool:
    """Whether saving ``step`` finished."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(system, "operations", faults.operations)
        patch.setattr(durable.atomic_files, "_CHUNK_BYTES", 4096)
        try:
            save(folder, step)
        except (CheckpointError, Killed):
            return False
    return True


@pytest.fixture
def temporary_dir(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary files of the system may be on another file system."""
    if request.param:
        if not Path(request.param).is_dir():
            pytest.skip(f"there is no {request.param}")
        monkeypatch.setenv("TMPDIR", request.param)
        monkeypatch.setattr(tempfile, "tempdir", request.param)


@pytest.mark.parametrize(
    ("before", "temporary_dir"), [(0, ""), (3, ""), (3, "/dev/shm")], indirect=["temporary_dir"]
)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.usefixtures("temporary_dir")
def test_no_interrupted_operation_loses_a_committed_checkpoint(
    tmp_path: Path,
    fault: str,
    before: int,
    record_property: Callable[[str, object], None],
) -> None:
    template = tmp_path / "template"
    for step in range(1, before + 1):
        save(template, step)
    point = 0
    code, is_lasting = FAULTS[fault]
    while True:
        folder = start(template, tmp_path / f"at-{point}")
        faults = Interrupting(at=point, code=code, lasting=is_lasting)
        is_saved = attempt(folder, before + 1, faults)
        assert is_saved != faults.has_failed, "a fault was swallowed"
        assert all(path.is_relative_to(folder) or path == tmp_path for path in faults.paths)
        check_after(folder, before)
        if is_saved:
            break
        point += 1
    assert point > 30
    record_property(
        "counted", f"save after {before} others, {fault}: {point} operations interrupted, 0 lost"
    )


def check_after(folder: Path, before: int) -> None:
    found = visible(folder)
    is_new = f"step-{before + 1}" in found
    assert found >= (kept_after(before + 1) if is_new else kept_after(before)), "one was lost"
    assert newest(folder) == before + is_new
    check_links(folder)
    clean(folder)
    assert visible(folder) == found
    save(folder, before + 2)
    assert newest(folder) == before + 2
    clean(folder)
    if is_new:
        assert visible(folder) == kept_after(before + 2)


def test_save_makes_nothing_outside_its_folder(tmp_path: Path) -> None:
    faults = Interrupting(at=10**9, code=KILL, lasting=True)
    assert attempt(tmp_path / "checkpoints", 1, faults)
    devices = {path.parent.stat().st_dev for path in faults.paths if path.parent.exists()}
    assert devices == {tmp_path.stat().st_dev}
    assert {path.parent for path in faults.paths} <= {
        tmp_path.parent,
        tmp_path,
        tmp_path / "checkpoints",
        *(path for path in faults.paths if path.name.startswith(".staging-")),
    }
