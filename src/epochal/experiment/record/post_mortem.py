"""The debugger that ``--debug`` opens where a run failed, maybe in one of several processes."""

from __future__ import annotations

import os
import stat
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from epochal.distributed.environment import LAUNCHED_VARIABLE
from epochal.errors import ConfigError, TaskError

if TYPE_CHECKING:
    from epochal.distributed.world import World

_INPUT_VARIABLE = "EPOCHAL_DEBUG_INPUT"


def open_post_mortem(error: BaseException | None) -> None:
    """Open pdb at the frame that raised ``error``, if this process has standard input.

    Interrupts and mistakes in a config are ignored: there is nothing to inspect.
    """
    if error is None or isinstance(error, KeyboardInterrupt | ConfigError) or not _can_type():
        return
    import pdb

    sys.stderr.write("the debugger is at the line that failed: u goes up, q ends\n")
    sys.stderr.flush()
    pdb.post_mortem(error.__traceback__)


def describe_input() -> dict[str, str]:
    """Environment variables that tell a child process which terminal its user types in."""
    try:
        descriptor = sys.stdin.fileno()
        name = os.ttyname(descriptor) if os.isatty(descriptor) else ""
    except (AttributeError, OSError, ValueError):
        return {}
    return {_INPUT_VARIABLE: name or f"/proc/{os.getpid()}/fd/{descriptor}"}


def prepare_rank(world: World, debug_rank: int | None) -> None:
    """Let breakpoints and errors open pdb in one of several processes, and in no other."""
    if debug_rank is None:
        is_chosen = "PYTHONBREAKPOINT" in os.environ
        if LAUNCHED_VARIABLE in os.environ and not world.is_single and not is_chosen:
            sys.breakpointhook = partial(_refuse_breakpoint, world.world_size)
        return
    if world.rank != debug_rank:
        os.environ["PYTHONBREAKPOINT"] = "0"  # Python then skips breakpoint()
        return
    path = os.environ.get(_INPUT_VARIABLE)
    if path is not None and Path(path).exists():  # else the null device is the input
        source = os.open(path, os.O_RDONLY)
        os.dup2(source, 0)
        os.close(source)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - until this process ends

    def look_at(error: BaseException) -> None:
        if isinstance(error, Exception) and not isinstance(error, ConfigError):
            sys.stderr.write(f"rank {debug_rank}: {type(error).__name__}: {error}\n")
            open_post_mortem(error)

    world.look_at = look_at


def _refuse_breakpoint(count: int, *args: object, **named: object) -> NoReturn:
    caller = sys._getframe(1)
    where = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    raise TaskError(
        f"{where}: breakpoint(): {count} processes reach this line, and their input is not the "
        "terminal\n"
        "  debug one of them: --debug-rank 0; PYTHONBREAKPOINT=0 skips all breakpoints"
    )


def _can_type() -> bool:
    """Whether there is an input, other than the null device."""
    try:
        descriptor = sys.stdin.fileno()
        return os.isatty(descriptor) or not stat.S_ISCHR(os.fstat(descriptor).st_mode)
    except (AttributeError, OSError, ValueError):  # no standard input, or one that was replaced
        return False
