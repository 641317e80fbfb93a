"""Describes a run that failed or was interrupted: what happened, where, what to do."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from epochal.errors import EpochalError
from epochal.records.folder.resume_command import find_resume_command
from epochal.records.secrets import hiding_secrets, iter_tree_secrets, redact
from epochal.registry.project_file import name_run
from epochal.text.command import epochal_command
from epochal.text.error_output import cut_quotes, print_error
from epochal.text.escape import escape_control
from epochal.text.formatting import format_count, format_seconds
from epochal.text.terminal import supports_colours

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.engine import RunResult

_FRAME = re.compile(r'^ +File "(.+?)", line (\d+)(?:, in (.+))?\n(?: +(.+))?', re.MULTILINE)
_LIBRARIES = (str(Path(__file__).parents[2]), str(Path(re.__file__).parents[1]), "<frozen")
_MAX_FRAMES = 3
_MIN_WIDTH, _MAX_WIDTH = 30, 100
_FRAME_WIDTH = 4
_IN_WORKER = "Original Traceback (most recent call last):"
_READING = "data: while reading "


def show_failure(result: RunResult, *, what: str = "run") -> None:
    """Print to standard error how a run, or ``what``, failed; nothing if it did not."""
    if result.ok:
        return
    sys.stdout.flush()
    if result.reason == "config" and result.dir is None:
        print_error(redact_message(result))  # mistakes, as `epochal check` lists them
    else:
        kind = f": {result.exception_type}" if result.status == "failed" else ""
        kind += f" on rank {result.rank}" if kind and result.rank is not None else ""
        lines = _redacted("\n".join(describe_failure(result)), result)
        text = _format_panel(f"{what} {result.status}{kind}", lines)
        print(text, file=sys.stderr)  # noqa: T201 - the one place that prints a failure


def redact_message(result: RunResult) -> str:
    """The message of a failed run as it may be shown."""
    return _redacted(result.message, result)


def _redacted(text: str, result: RunResult) -> str:
    """A text without the secrets of the run and without control characters."""
    with hiding_secrets(iter_tree_secrets(result.config)):
        # Our messages start with a key and quote its value.
        return escape_control(redact(text, is_code=_is_epochal_error(result)))


def show_error(error: Exception, *, what: str = "run") -> int:
    """Print to standard error how the user's code failed; returns the exit code.

    Our own errors are raised again: the command line prints them.
    """
    from epochal.engine.execute import result_of_error  # imports torch: most verbs do without

    if isinstance(error, EpochalError):
        raise error
    result = result_of_error(error)
    show_failure(result, what=what)
    return result.exit_code


def describe_failure(result: RunResult) -> list[str]:
    """The lines in the box of a run that failed or was interrupted."""
    if result.status == "interrupted":
        how = result.message or "stopped by Ctrl-C"
        lines = [f"{how} after {describe_progress(result)}"]
    elif result.status == "preempted":
        when = f"after {describe_progress(result)}" if result.steps else "before the first step"
        lines = [f"preempted {when}"]
    else:
        lines = _message(result)
        lines += [f"  {note}" for note in _notes(result) if note.strip() and note not in lines]
        if result.status == "failed" and not _is_epochal_error(result):
            lines += ["", *_own_frames(result.traceback)]
    if result.dir is not None:
        lines += ["", f"record: {result.dir}"]
        if result.status == "failed":
            lines.append(f"full traceback: {epochal_command()} show {name_run(result.dir)} --log")
        can_continue = result.status != "failed" or result.reason == "rank_lost"
        if can_continue and (command := find_resume_command(result.dir, epochal_command())):
            lines.append(f"resume: {command}")
    return lines


def describe_progress(result: RunResult) -> str:
    """The progress of a run: epochs, steps and time."""
    counts = [
        format_count(result.epochs, "epoch") if result.epochs else "",
        format_count(result.steps, "step") if result.steps else "",
        format_seconds(result.seconds),
    ]
    return ", ".join(count for count in counts if count)


def _message(result: RunResult) -> list[str]:
    lines = result.message.splitlines() or ["(the error has no message)"]
    if _IN_WORKER in result.message:  # a loader worker sends its whole traceback
        has_note = lines[-1].startswith(_READING)  # which sample it was
        return [lines[0], *lines[-2 if has_note else -1 :]]
    return lines


def _is_epochal_error(result: RunResult) -> bool:
    """Whether it is one of our errors, whose messages need no traceback."""
    kinds: list[type[EpochalError]] = [EpochalError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return result.exception_type in {kind.__name__ for kind in kinds}


def _notes(result: RunResult) -> list[str]:
    """The notes of the error, such as which part was being built."""
    if _IN_WORKER in result.message:  # has the notes of the worker, and another traceback
        rest = result.traceback.rpartition(result.message)[2]
        return [line for line in rest.splitlines() if line.strip()]
    frames = list(_FRAME.finditer(result.traceback))
    rest = result.traceback[frames[-1].end() if frames else 0 :]
    head = re.search(rf"^([\w.<>]+\.)?{result.exception_type}(: |$)", rest, re.MULTILINE)
    if head is None:
        return []
    rest = rest[head.end() :]
    if rest.startswith(result.message):
        return [line for line in rest[len(result.message) :].splitlines() if line.strip()]
    return rest.splitlines()[1:]


def _own_frames(traceback: str) -> Iterator[str]:
    """The last frames of a traceback in the user's code; otherwise the last of all."""
    frames = list(_FRAME.finditer(traceback))
    own = [one for one in frames if "site-packages" not in one[1]]
    own = [one for one in own if not one[1].startswith(_LIBRARIES)]
    for frame in (own or frames)[-_MAX_FRAMES:]:
        yield f"{_short(frame[1])}:{frame[2]}" + (f", in {frame[3]}" if frame[3] else "")
        if frame[4]:
            yield f"    {frame[4]}"


def _short(path: str) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def _format_panel(title: str, text: str) -> str:
    """``text`` in a frame with a title, for standard error."""
    from rich.console import Console, Group
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.text import Text

    width = min(max(shutil.get_terminal_size((80, 24)).columns, _MIN_WIDTH), _MAX_WIDTH)
    lines = [  # padding, not spaces: wrapped lines keep the indentation
        Padding(Text(line.strip()), (0, 0, 0, len(line) - len(line.lstrip())))
        for line in cut_quotes(text.splitlines(), width - _FRAME_WIDTH)
    ]
    colours: Literal["standard"] | None = "standard" if supports_colours(sys.stderr) else None
    console = Console(file=sys.stderr, width=width, color_system=colours, force_jupyter=False)
    with console.capture() as printed:
        heading = Text(title, "bold red")
        console.print(Panel(Group(*lines), title=heading, title_align="left", border_style="red"))
    return printed.get().rstrip()
