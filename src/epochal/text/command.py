"""How users call ``epochal`` here, for commands that messages tell them to type."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

_NAME = "epochal"


def epochal_command() -> str:
    """How to call ``epochal``: by its name if the shell finds it, else as it was called."""
    found = shutil.which(_NAME)
    typed = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path(_NAME)
    beside = Path(sys.executable).parent / _NAME
    if typed.name == _NAME:
        return _NAME if found and _is_same(Path(found), typed) else _shown(typed)
    if found and _is_same(Path(found), beside):
        return _NAME
    if typed.name != "__main__.py" and beside.is_file():  # a script of the user
        return _shown(beside)
    return f"{_shown(Path(sys.executable))} -m {_NAME}"


def absolute_command() -> str:
    """How to type ``epochal`` in another folder."""
    command = epochal_command()
    return command if Path(command).name == command else str(Path(command).absolute())


def command_line_words() -> list[str]:
    """The words of the command that started this process."""
    if not sys.argv:
        return []
    program, words = Path(sys.argv[0]), sys.argv[1:]
    if program.name != "__main__.py":
        return [program.name, *words]
    package = program.parent.name  # of `python -m package`
    return [_NAME, *words] if package == _NAME else ["python", "-m", package, *words]


def _shown(path: Path) -> str:
    try:
        path = path.absolute().relative_to(Path.cwd())
    except ValueError:
        return shlex.quote(str(path))
    return shlex.quote(str(path) if os.sep in str(path) else f"{os.curdir}{os.sep}{path}")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist
        return False
