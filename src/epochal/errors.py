"""Every error that epochal raises on purpose, and how it is shown.

EpochalError                   exit code 1
├── ConfigError             78 the configuration cannot be used
│   ├── UnknownComponentError  a name leads to no component
│   └── MissingFileError    66 a file that was asked for is not there
├── TaskError               70 a task, model or hook broke its contract
├── DataError               65 a loader is empty, or died
│   └── WorkerDiedError        a worker process of a loader died
├── CheckpointError         74 weights cannot be written or read
├── RecordError             74 a run's record is missing or damaged
│   └── LeaseLostError      73 a run no longer owns its folder
├── UntrustedCodeError      77 code outside of this project would be executed
└── DivergedError           79 losses or weights of a run are not finite
Preempted                   75 not an error: the run stops, and is continued later

A message answers three questions in this order: where, what, what now.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


COMMAND_LINE = "command line"
"""The name of places that are words of the command line."""


@final
@dataclass(frozen=True, slots=True)
class Place:
    """Where a value was written: a spot in a file, or a word such as ``command line``."""

    name: str
    """The file as a user would type it, or what else the value came from."""

    line: int = 0
    """Counted from 1; 0 when only the file is known."""

    column: int = 0
    """Counted from 1; 0 when only the file is known."""

    text: str = ""
    """The source line itself, so that a caret can be drawn under it."""

    width: int = 1
    """How many characters the caret underlines."""

    @override
    def __str__(self) -> str:
        is_in_file = self.line and self.name != COMMAND_LINE
        return f"{self.name}:{self.line}:{self.column}" if is_in_file else self.name


@final
@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, what, and what to do now."""

    key: str
    """The config key or path it is about."""

    what: str
    """Lower case, no full stop; contains the offending value as ``!r``."""

    place: Place | None = None
    hint: str = ""
    """A command or a value that the user can type."""

    @override
    def __str__(self) -> str:
        lines = [f"{self.key}: {self.what}"]
        if self.place is not None:
            joint = "on the" if self.place.name == COMMAND_LINE else "in"
            lines.append(f"  set {joint} {self.place}")
            lines.extend(_underline(self.place))
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)


def _underline(place: Place) -> list[str]:
    if not (place.line and place.text.strip()):
        return []
    indent = len(place.text) - len(place.text.lstrip())
    start = max(place.column - 1 - indent, 0)
    shown = place.text.strip()
    width = max(1, min(place.width, len(shown) - start))
    return [f"    {shown}", f"    {' ' * start}{'^' * width}"]


STALLED_EXIT_CODE = 69
"""Of a run that hung and was ended; another start may continue it."""

OUT_OF_MEMORY_EXIT_CODE = 71
"""Of a run for which the memory of the device or the host was too small."""

PREEMPTED_EXIT_CODE = 75
"""Of a run that was asked to end and saved; another start continues it."""

RANK_LOST_EXIT_CODE = 76
"""Of a run that lost one of its processes or machines; another start may continue it."""

CANNOT_START_EXIT_CODE = 126
"""Of a job that could not be started, as shells give it for a command that they cannot execute."""

INTERRUPTED_EXIT_CODE = 130
"""Of a run that Ctrl-C ended, as shells give it."""


class EpochalError(Exception):
    """A mistake that the user can fix; shown without a traceback."""

    exit_code: ClassVar[int] = 1


class ConfigError(EpochalError):
    """The configuration cannot be used; carries every problem that was found."""

    exit_code = 78

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n\n".join(str(problem) for problem in problems))
        self.problems = problems

    def locate(self, find_place: Callable[[str], Place | None]) -> None:
        """Add the place of each key to the problems that have none."""
        self.problems = tuple(
            problem if problem.place else replace(problem, place=find_place(problem.key))
            for problem in self.problems
        )
        self.args = ("\n\n".join(str(problem) for problem in self.problems),)


class UnknownComponentError(ConfigError):
    """A name leads to no component."""


class MissingFileError(ConfigError):
    """A file that was asked for is not there."""

    exit_code = 66


class TaskError(EpochalError):
    """A task, model or hook broke its contract."""

    exit_code = 70


class DataError(EpochalError):
    """A loader is empty, or died."""

    exit_code = 65


@final
class WorkerDiedError(DataError):
    """A worker process of a loader died."""

    def __init__(self, label: str, reading: str = "", *, fault: str = "", lines: str = "") -> None:
        hint = "often it ran out of memory; without workers (workers: 0, or num_workers=0) "
        hint += "an error of the dataset itself is shown"
        if fault:
            hint = f"in {lines}\n  native code that is called there crashed; try that sample alone"
        what = f"{label}: a worker process of the loader died{reading}"
        super().__init__(f"{what}{fault and f': {fault}'}\n  {hint}")


class CheckpointError(EpochalError):
    """Weights cannot be written or read."""

    exit_code = 74


class Preempted(KeyboardInterrupt):
    """The job is preempted: it stops now and is continued later."""

    exit_code: ClassVar[int] = PREEMPTED_EXIT_CODE


class RecordError(EpochalError):
    """A run's record is missing or damaged."""

    exit_code = 74


class LeaseLostError(RecordError):
    """The folder of a run is gone, was moved, or another process has taken it over."""

    exit_code = 73


class UntrustedCodeError(EpochalError):
    """Code outside of this project would be executed, and the user has not allowed that."""

    exit_code = 77

    def __init__(self, what: str, hint: str = "if you trust that code, pass trust=True") -> None:
        super().__init__(f"{what}\n  {hint}")
        self.what = what


DIVERGED = "diverged"
"""The status, and the reason, of a run whose losses, gradients or weights are not finite."""


class DivergedError(EpochalError):
    """The run ended with losses, gradients or weights that are not finite."""

    exit_code = 79


def suggest(name: str, known: Iterable[str]) -> str:
    """A "did you mean" hint for ``name``, or the known names, or nothing."""
    names = sorted(set(known))
    close = nearest(name, names)
    if close is not None:
        return f"did you mean {close!r}?"
    return "known: " + ", ".join(names) if names and len(names) <= 12 else ""


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name closest to ``name``, if one is close enough; case does not count."""
    close = nearest_few(name, known, 1, cutoff=cutoff)
    return close[0] if close else None


def nearest_few(
    name: str, known: Iterable[str], count: int, *, cutoff: float = 0.6
) -> tuple[str, ...]:
    """The closest known names that are close enough, the closest first."""
    folded = {candidate.casefold(): candidate for candidate in sorted(set(known))}
    close = difflib.get_close_matches(name.casefold(), folded, n=count, cutoff=cutoff)
    return tuple(folded[found] for found in close)


def misspelling_of(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` misspells: the same words, each with at most one typo.

    Stricter than ``nearest``, for names that users may choose freely: ``batch_metrics``
    misspells ``batch_metric``, but ``batch_loss_fn`` has one word more and does not.
    """
    words = _words(name)
    meant = [other for other in known if _has_typos(words, _words(other))]
    return nearest(name, meant, cutoff=0.0)


def _words(name: str) -> list[str]:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")


def _has_typos(written: list[str], meant: list[str]) -> bool:
    if written == meant or len(written) != len(meant):
        return "".join(written) == "".join(meant)
    if len(meant) == 1 and written[0] == f"{meant[0]}s":
        return False  # the plural of a single word is another word
    pairs = zip(written, meant, strict=True)
    return all(one == other or _is_one_typo(one, other) for one, other in pairs)


def _is_one_typo(written: str, meant: str) -> bool:
    """Whether one letter is missing, added or another, or two neighbours changed places."""
    shorter = min(len(written), len(meant))
    start = 0
    while start < shorter and written[start] == meant[start]:
        start += 1
    end = 0
    while end < shorter - start and written[-1 - end] == meant[-1 - end]:
        end += 1
    one, other = written[start : len(written) - end], meant[start : len(meant) - end]
    if len(one) == 2 and one == other[::-1]:
        return True
    is_replaced = len(one) == len(other) == 1
    # Short words are one letter away from many others.
    return shorter > 3 if is_replaced else shorter > 2 and len(one) + len(other) == 1
