"""Reads the traceback that a native crash, such as a segmentation fault, left in a run folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal.durable import find_text

if TYPE_CHECKING:
    from collections.abc import Sequence

CRASH_FILE_NAME = "crash.txt"
"""The fault and the Python stack of the newest process, in the folder ``logs`` of a run."""

_FAULT = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
_MAX_FRAMES = 3
_LIBRARIES = ("/site-packages/", "/dist-packages/", "<frozen ", "<string>")


@final
@dataclass(frozen=True, kw_only=True)
class Crash:
    """A fault such as ``Segmentation fault``, the calls it happened in, and the whole text."""

    fault: str
    lines: str
    text: str


def parse_crash(text: str) -> Crash | None:
    """The crash that faulthandler wrote; None if there is none.

    ``lines`` are the innermost calls; those of the user's own code if they are further out.
    """
    found = _FAULT.search(text)
    if not found:
        return None
    frames = _FRAME.findall(text)
    own = [frame for frame in frames if not any(name in frame[0] for name in _LIBRARIES)]
    shown = frames[:_MAX_FRAMES]
    if own and own[0] not in shown:
        shown = [frames[0], own[0]]
    return Crash(fault=found.group(1), lines=_describe(shown), text=text)


def _describe(frames: Sequence[tuple[str, str, str]]) -> str:
    shown = [f"{Path(file).name}:{line} {name}" for file, line, name in frames]
    return ", called from ".join(shown)


def find_crash(run_dir: Path) -> Crash | None:
    """The crash that ended the newest process of a run; None if it left none."""
    stem, suffix = Path(CRASH_FILE_NAME).stem, Path(CRASH_FILE_NAME).suffix
    texts = map(find_text, sorted((run_dir / "logs").glob(f"{stem}*{suffix}")))
    return next((crash for crash in map(parse_crash, texts) if crash is not None), None)
