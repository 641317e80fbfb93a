"""Words and options that several verbs share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from epochal import durable
from epochal.errors import ConfigError, Problem
from epochal.text.command import epochal_command
from epochal.text.escape import decode_typed, escape_control_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_LIKE_A_FILE = re.compile(r"\.(ya?ml|toml|json|py)$")
_OVERRIDE = re.compile(r"[A-Za-z_][\w.-]*=")


def add_config_arguments(parser: argparse.ArgumentParser, *, takes_all: bool = True) -> None:
    """Declare the files, the ``key=value`` words and what chooses among experiments."""
    others = ", or `all` of them in turn" if takes_all else ""
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE|key=value",
        help="config files (YAML, TOML, JSON) and changes to them, such as optim.lr=1e-3",
    )
    parser.add_argument("--variant", metavar="NAME", help=f"one of the file's variants{others}")
    parser.add_argument(
        "--user-dir", type=Path, metavar="DIR", help="folder in which the project's code lies"
    )
    parser.add_argument(
        "--allow-python", action="store_true", help="accept a .py config, which runs its code"
    )


def split_files_and_overrides(words: list[str]) -> tuple[list[Path], list[str]]:
    """The files and the overrides among ``words``.

    Raises:
        ConfigError: A word is neither, or there is no file among them.
    """
    groups = list(_group(words))
    problems = [problem for group in groups for problem in _problems_with(group)]
    overrides = [decode_typed(word) for word in words if _is_override(word)]
    files = [Path(word) for word in words if not _is_override(word)]
    if not files:
        what = f"no config file among {' '.join(words)!r}"
        hint = f"name a file first: {epochal_command()} run FILE key=value"
        problems = [Problem("command line", what, hint=hint)]
    if problems:
        raise ConfigError(*problems)
    return files, overrides


def split_single_file(words: list[str], verb: str) -> tuple[Path, list[str]]:
    """The file and the overrides among ``words``, for a verb that looks at one config.

    Raises:
        ConfigError: As ``split_files_and_overrides``, or there are several files.
    """
    files, overrides = split_files_and_overrides(words)
    if len(files) > 1:
        what, hint = f"{verb} looks at one config at a time", f"write {verb} {files[0]}"
        raise ConfigError(Problem("command line", what, hint=hint))
    return files[0], overrides


def _is_override(word: str) -> bool:
    return bool(_OVERRIDE.match(word)) and not Path(word).exists()


def _is_file(word: str) -> bool:
    """Whether a word can only be meant as a file, there or not."""
    return Path(word).exists() or bool(_LIKE_A_FILE.search(word))


def _group(words: list[str]) -> Iterator[list[str]]:
    """The words, those together that were typed with spaces around an equals sign."""
    group: list[str] = []
    for word in words:
        is_value = group and group[-1].endswith("=") and not _is_file(word)
        if group and (word.startswith("=") or (is_value and not _is_override(word))):
            group.append(word)
            continue
        if group:
            yield group
        group = [word]
    if group:
        yield group


def _problems_with(group: list[str]) -> Iterator[Problem]:
    """What is wrong with words that are neither a file nor a change, and what was meant."""
    typed, word = " ".join(group), group[0]
    key, equals, value = word.partition("=")
    if len(group) > 1:
        yield Problem(typed, "has spaces around '='", hint=f"write {''.join(group)}")
    elif _is_file(word) or _is_override(word):
        return
    elif word.startswith("+"):
        what = "epochal has no '+': a new key is written like any other"
        yield Problem(word, what, hint=f"write {word.lstrip('+')}")
    elif word.startswith("~"):
        what = "epochal has no '~': a key is removed by giving it the value $delete"
        yield Problem(word, what, hint=f"write '{key.lstrip('~')}=$delete'")
    elif equals:
        meant = f"{re.sub(r'[/:]+', '.', key).strip('.')}={value}"
        hint = f"write {meant}" if _OVERRIDE.match(meant) else "write key=value"
        yield Problem(word, f"{key!r} is no key of a config", hint=hint)
    else:
        what = "neither a config file that exists nor key=value"
        yield Problem(word, what, hint=f"write {word}=VALUE to change a value of the config")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json``, which every verb with a table has."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def add_runs_dir_option(parser: argparse.ArgumentParser) -> None:
    """Declare where runs are looked for."""
    parser.add_argument(
        "--runs-dir",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="folder below which runs are looked for (default: runs)",
    )


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the one run that a verb is about."""
    text = "a run's folder, its id or a part of it, or `last`"
    parser.add_argument("run", metavar="RUN", help=text)
    add_runs_dir_option(parser)


def print_json(value: object) -> None:
    """Print valid JSON, also of numbers that JSON lacks: they become ``"$nan"``, ``"$inf"``."""
    print(escape_control_json(durable.encode_json(value, indent=2).decode()))
