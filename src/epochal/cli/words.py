"""Words and options that several verbs share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from epochal import durable
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    import argparse

_OVERRIDE = re.compile(r"[A-Za-z_][\w.-]*=")


def add_config_words(parser: argparse.ArgumentParser) -> None:
    """Declare the files, the ``key=value`` words and what chooses among experiments."""
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE|key=value",
        help="config files (YAML, TOML, JSON) and changes to them, such as optim.lr=1e-3",
    )
    parser.add_argument(
        "--variant", metavar="NAME", help="one of the file's variants, or `all` of them in turn"
    )
    parser.add_argument(
        "--user-dir", type=Path, metavar="DIR", help="folder in which the project's code lies"
    )
    parser.add_argument(
        "--allow-python", action="store_true", help="accept a .py config, which runs its code"
    )


def split_words(words: list[str]) -> tuple[list[Path], list[str]]:
    """The files and the overrides among ``words``.

    Raises:
        ConfigError: There is no file among them.
    """
    overrides = [word for word in words if _OVERRIDE.match(word) and not Path(word).exists()]
    files = [Path(word) for word in words if word not in overrides]
    if not files:
        raise ConfigError(
            Problem(
                "command line",
                f"no config file among {' '.join(words)!r}",
                hint="name a file first: epochal run FILE key=value",
            )
        )
    return files, overrides


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json``, which every verb with a table has."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def add_runs_option(parser: argparse.ArgumentParser) -> None:
    """Declare where runs are looked for."""
    parser.add_argument(
        "--runs-dir",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="folder below which runs are looked for (default: runs)",
    )


def add_run_word(parser: argparse.ArgumentParser) -> None:
    """Declare the one run that a verb is about."""
    text = "a run's folder, its id or a part of it, or `last`"
    parser.add_argument("run", metavar="RUN", help=text)
    add_runs_option(parser)


def print_json(value: object) -> None:
    """Print valid JSON, also of numbers that JSON lacks: they become ``"$nan"``, ``"$inf"``."""
    print(durable.encode_json(value, indent=2).decode())
