"""Which files of a project are not kept, as ``.gitignore`` files, the config and usage say."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from epochal.records.code.globs import Glob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_USUAL = """
.*
__pycache__/
node_modules/
site-packages/
*.egg-info/
/build/
/dist/
*.pyc
*.pyo
*.so
*.log
*.tmp
*.swp
*~
*.pt
*.pth
*.ckpt
*.bin
*.onnx
*.safetensors
*.gguf
*.npy
*.npz
*.h5
*.hdf5
*.parquet
*.arrow
*.tfrecord
*.lmdb
*.mdb
*.db
*.sqlite
*.zip
*.tar
*.gz
*.bz2
*.xz
*.zst
*.7z
*.whl
*.mp4
*.avi
*.mkv
*.mov
*.wav
*.flac
*.mp3
"""
_GLOB = re.compile(r"[*?\[\\]")


@final
@dataclass(frozen=True, slots=True)
class _Rule:
    number: int
    """Its place: of the rules that fit, the last one decides."""

    is_ignored: bool
    folders_only: bool


@final
@dataclass(slots=True)
class Rules:
    """Lines with the syntax of ``.gitignore``, sorted such that most are found by one look-up."""

    names: dict[str, list[_Rule]] = field(default_factory=dict)
    paths: dict[str, list[_Rule]] = field(default_factory=dict)
    suffixes: dict[str, list[_Rule]] = field(default_factory=dict)
    globs: dict[str, list[tuple[Glob, _Rule]]] = field(default_factory=dict)
    """By the folder that they hold for."""

    count: int = 0

    def add(self, lines: Iterable[str], *, base: str = "") -> None:
        """Take in lines that hold below the folder ``base``, which is empty or ends with a slash.

        ``/x`` stands for the top folder only, ``x`` for any folder, ``x/y`` for the path itself;
        ``*``, ``?``, ``[...]`` and ``**`` as usual; a last slash means folders only; ``!`` keeps
        what an earlier line left out.
        """
        for line in lines:
            self._add(line.rstrip("\r\n"), base)

    def _add(self, line: str, base: str) -> None:
        text = line if line.endswith("\\ ") else line.rstrip(" ")
        if not text or text.startswith("#"):
            return
        is_ignored = not text.startswith("!")
        text = text.removeprefix("!").removeprefix("./")
        rule = _Rule(self.count, is_ignored, text.endswith("/"))
        text = text.rstrip("/")
        is_anchored = "/" in text
        text = text.removeprefix("/")
        if not text:
            return
        self.count += 1
        if not _GLOB.search(text) and (is_anchored or not base):
            table = self.paths if is_anchored else self.names
            table.setdefault(f"{base}{text}" if is_anchored else text, []).append(rule)
        elif not (base or is_anchored or _GLOB.search(text[1:])) and text.startswith("*."):
            self.suffixes.setdefault(text[1:], []).append(rule)
        else:
            glob = Glob(text, is_anchored=is_anchored)
            self.globs.setdefault(base, []).append((glob, rule))

    def find(self, path: str, *, is_folder: bool) -> bool | None:
        """Whether ``path`` is left out, if any line speaks of it."""
        if not self.count:
            return None
        name = path.rpartition("/")[2]
        fitting = [rule for rule in self._fitting(path, name) if is_folder or not rule.folders_only]
        return max(fitting, key=lambda rule: rule.number).is_ignored if fitting else None

    def _fitting(self, path: str, name: str) -> Iterator[_Rule]:
        yield from self.names.get(name, ())
        yield from self.paths.get(path, ())
        if self.suffixes:
            dot = name.find(".")
            while dot >= 0:
                yield from self.suffixes.get(name[dot:], ())
                dot = name.find(".", dot + 1)
        if self.globs:
            yield from self._fitting_globs(path.split("/"))

    def _fitting_globs(self, names: list[str]) -> Iterator[_Rule]:
        base = ""
        for depth, name in enumerate(names):
            for glob, rule in self.globs.get(base, ()):
                if glob.fits(names[depth:]):
                    yield rule
            base = f"{base}{name}/"


def usual_rules() -> Rules:
    """What is hardly ever code: caches, environments, weights, data and whatever is hidden."""
    rules = Rules()
    rules.add(_USUAL.split())
    return rules
