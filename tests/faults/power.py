"""A simulated disk that loses power: what was not synced may be lost, torn or reordered.

``Recorder`` records every operation while it happens. ``Disk`` replays the first so many of them
and separates what is certain from what is pending; ``state`` is one state that a power cut could
leave, ``materialise`` writes it as a folder.

The rules are stricter than those of real file systems: a file keeps its content of the last fsync;
each sector written since may be there or not. A folder keeps its names of the last fsync; each
later change of a name may be there or not, independent of earlier ones. A rename within a folder
is atomic.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from epochal import durable

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

Entry = tuple[str, tuple[Any, ...]]
Found = tuple[tuple[str, ...], bytes | str | None]
"""A path, and the bytes of a file, the target of a link, or None for a folder."""
State = tuple[Found, ...]


class Recorder:
    """Carries out every operation and records it."""

    def __init__(self, root: Path, *, forgets: tuple[str, ...] = ()) -> None:
        self.log: list[Entry] = []
        self._root = root
        self._forgets = forgets
        """Kinds of syncs to skip, to test the simulation: ``file``, ``dir``."""
        self._is_dir: dict[int, bool] = {}
        self.operations = durable.Operations(
            open=self._open,
            write=self._write,
            fsync=self._fsync,
            close=self._close,
            replace=self._pair("replace", os.replace),
            unlink=self._one("unlink", os.unlink),
            mkdir=self._one("mkdir", os.mkdir),
            rmdir=self._one("rmdir", os.rmdir),
            symlink=self._symlink,
        )

    def mark(self, what: str, name: str) -> None:
        """Record an event that is not an operation, such as an acknowledged save."""
        self.log.append((what, (name,)))

    def _short(self, path: Path) -> tuple[str, ...]:
        return path.relative_to(self._root).parts

    def _open(self, path: Path, flags: int, mode: int) -> int:
        descriptor = os.open(path, flags, mode)
        self._is_dir[descriptor] = not flags & os.O_CREAT
        self.log.append(("open", (descriptor, self._short(path), bool(flags & os.O_CREAT))))
        return descriptor

    def _write(self, descriptor: int, data: bytes | memoryview) -> int:
        written = os.write(descriptor, data)
        self.log.append(("write", (descriptor, bytes(data[:written]))))
        return written

    def _fsync(self, descriptor: int) -> None:
        if ("dir" if self._is_dir[descriptor] else "file") not in self._forgets:
            self.log.append(("fsync", (descriptor,)))

    def _close(self, descriptor: int) -> None:
        os.close(descriptor)
        self.log.append(("close", (descriptor,)))

    def _symlink(self, target: str, path: Path) -> None:
        path.symlink_to(target)
        self.log.append(("symlink", (target, self._short(path))))

    def _one(self, name: str, real: Callable[[Path], None]) -> Callable[[Path], None]:
        def call(path: Path) -> None:
            real(path)
            self.log.append((name, (self._short(path),)))

        return call

    def _pair(self, name: str, real: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def call(old: Path, new: Path) -> None:
            real(old, new)
            self.log.append((name, (self._short(old), self._short(new))))

        return call


@dataclass
class File:
    synced: bytes = b""
    pending: list[tuple[int, bytes]] = field(default_factory=list)
    size: int = 0


@dataclass
class Link:
    target: str


@dataclass
class Folder:
    synced: dict[str, Any] = field(default_factory=dict)
    pending: list[list[tuple[str, Any]]] = field(default_factory=list)
    """Changes of names: each a list of names and their new targets; None removes a name."""
    now: dict[str, Any] = field(default_factory=dict)

    def change(self, *changes: tuple[str, Any]) -> None:
        self.pending.append(list(changes))
        apply(self.now, changes)


def apply(entries: dict[str, Any], changes: Any) -> None:
    for name, node in changes:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class Disk:
    """The state of a disk after some operations; the folder it starts with is empty."""

    def __init__(self, log: list[Entry]) -> None:
        self.root = Folder()
        self._files: dict[int, Any] = {}
        for name, args in log:
            if name not in ("close", "saved", "removing"):
                getattr(self, f"_{name}")(*args)

    def state(self, dice: Dice) -> State:
        """One of the possible states after a power cut."""
        return tuple(self._look(self.root, (), dice))

    @property
    def pending(self) -> int:
        """The number of changes that a power cut may undo."""
        return _pending(self.root)

    def _look(self, folder: Folder, path: tuple[str, ...], dice: Dice) -> Iterator[Found]:
        entries = dict(folder.synced)
        for changes in dice.some(folder.pending):
            apply(entries, changes)
        for name, node in sorted(entries.items()):
            if isinstance(node, Folder):
                yield (*path, name), None
                yield from self._look(node, (*path, name), dice)
            else:
                found = node.target if isinstance(node, Link) else dice.content(node)
                yield (*path, name), found

    def _at(self, path: tuple[str, ...]) -> Any:
        node: Any = self.root
        for name in path:
            node = node.now[name]
        return node

    def _open(self, descriptor: int, path: tuple[str, ...], may_be_new: bool) -> None:
        if may_be_new and path[-1] not in self._at(path[:-1]).now:
            self._at(path[:-1]).change((path[-1], File()))
        self._files[descriptor] = self._at(path)

    def _write(self, descriptor: int, data: bytes) -> None:
        file = self._files[descriptor]
        file.pending.append((file.size, data))
        file.size += len(data)

    def _fsync(self, descriptor: int) -> None:
        node = self._files[descriptor]
        if isinstance(node, Folder):
            node.synced = dict(node.now)
        else:
            node.synced += b"".join(data for _, data in node.pending)
        node.pending.clear()

    def _replace(self, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        assert old[:-1] == new[:-1], "a rename between folders"
        self._at(old[:-1]).change((old[-1], None), (new[-1], self._at(old)))

    def _unlink(self, path: tuple[str, ...]) -> None:
        self._at(path[:-1]).change((path[-1], None))

    _rmdir = _unlink

    def _mkdir(self, path: tuple[str, ...]) -> None:
        self._at(path[:-1]).change((path[-1], Folder()))

    def _symlink(self, target: str, path: tuple[str, ...]) -> None:
        self._at(path[:-1]).change((path[-1], Link(target)))


def _pending(node: Any) -> int:
    if isinstance(node, Folder):
        return len(node.pending) + sum(_pending(inner) for inner in node.now.values())
    return sum(len(data) // 512 for _, data in node.pending) if isinstance(node, File) else 0


def materialise(state: State, target: Path) -> None:
    """Write a state as a folder."""
    target.mkdir()
    for path, found in state:
        place = target.joinpath(*path)
        if found is None:
            place.mkdir()
        elif isinstance(found, str):
            place.symlink_to(found)
        else:
            place.write_bytes(found)


class Dice:
    """Decides which pending changes survive a power cut."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._share = dice.choice([0.0, 1.0, dice.random(), dice.random(), dice.random()])
        self._sector = dice.choice([512, 4096])
        self._is_in_order = dice.random() < 0.3

    def some(self, changes: list[Any]) -> list[Any]:
        """The changes that survive: any of them, or the first so many."""
        if self._is_in_order:
            return changes[: self._dice.randint(0, len(changes))]
        return [change for change in changes if self._dice.random() < self._share]

    def content(self, file: File) -> bytes:
        """The content that survives: lost sectors are zero or cut off."""
        data = bytearray(file.synced)
        for offset, written in file.pending:
            for start in range(0, len(written), self._sector):
                if self._dice.random() < self._share:
                    piece = written[start : start + self._sector]
                    end = offset + start + len(piece)
                    data.extend(bytes(max(0, end - len(data))))
                    data[offset + start : end] = piece
        return bytes(data)
