"""Arguments and options that several verbs share."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from epochal import durable
from epochal.errors import ConfigError, Problem, RecordError
from epochal.experiment.config.choices import add_choices, add_options
from epochal.records.layout.sweep_folders import SWEEPS_DIR, get_sweeps_dir, is_sweep_folder
from epochal.text.command import epochal_command
from epochal.text.escape import decode_typed, escape_control_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from epochal.sweep.sweep_folder import SweepFolder

_FILE_NAME = re.compile(r"\.(ya?ml|toml|json|py)$")
_OVERRIDE = re.compile(r"[A-Za-z_][\w.-]*=")

RUN_HELP = "folder, id or tag of a run, or a part of one, `last`, or `last~1` for the one before"


def add_config_words(parser: argparse.ArgumentParser) -> None:
    """Declare config files and ``key=value`` overrides."""
    text = "config files (YAML, TOML, JSON) and overrides such as optim.lr=1e-3"
    parser.add_argument("words", nargs="+", metavar="FILE|key=value", help=text)


def add_config_arguments(
    parser: argparse.ArgumentParser, *, takes_all: bool = True, device: str = ""
) -> None:
    """Declare the arguments of verbs that read configs and run nothing; they also print JSON."""
    add_config_words(parser)
    text = "a variant of the config"
    several = f"{text}, several as `wide,deep`, or `all`; `base` is the config without a variant"
    add_options(parser, {"--variant NAMES": several} if takes_all else {"--variant NAME": text})
    add_choices(parser, "--user-dir", "--allow-python")
    add_json_option(parser)
    if device:
        add_options(parser, {"--device D": device})
    else:
        add_choices(parser, "--device")


def split_files_and_overrides(words: list[str], verb: str = "run") -> tuple[list[Path], list[str]]:
    """The files and the overrides among ``words``.

    Raises:
        ConfigError: A word is neither, or there is no file among them.
    """
    groups = list(_group(words))
    problems = [problem for group in groups for problem in _problems_with(group)]
    overrides = [decode_typed(word) for word in words if _is_override(word)]
    files = [Path(word) for word in words if not _is_override(word)]
    if not files:
        what = f"no config file among {' '.join(words)!r}" if words else "no config file"
        hint = f"name a file first: {epochal_command()} {verb} FILE key=value"
        problems = [Problem("command line", what, hint=hint)]
    if problems:
        raise ConfigError(*problems)
    return files, overrides


def split_single_file(words: list[str], verb: str) -> tuple[Path, list[str]]:
    """The file and the overrides among ``words``, for a verb that takes one config.

    Raises:
        ConfigError: As ``split_files_and_overrides``, or there are several files.
    """
    files, overrides = split_files_and_overrides(words, verb)
    if len(files) > 1:
        what, hint = f"{verb} takes one config", f"write `epochal {verb} {files[0]}`"
        raise ConfigError(Problem("command line", what, hint=hint))
    return files[0], overrides


def _is_override(word: str) -> bool:
    return bool(_OVERRIDE.match(word)) and not _exists(word)


def _is_file(word: str) -> bool:
    """Whether a word is a file, or looks like the name of one."""
    return _exists(word) or bool(_FILE_NAME.search(word))


def _exists(word: str) -> bool:
    try:
        return Path(word).exists()
    except OSError:  # a value may be longer than a file name can be
        return False


def _group(words: list[str]) -> Iterator[list[str]]:
    """The words, grouped where spaces were typed around an equals sign."""
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
    """Problems with words that are neither files nor overrides, with suggestions."""
    typed, word = " ".join(group), group[0]
    key, equals, value = word.partition("=")
    if len(group) > 1:
        yield Problem(typed, "has spaces around '='", hint=f"write {''.join(group)}")
    elif _is_file(word) or _is_override(word):
        return
    elif word.startswith("+"):
        what = "epochal has no '+': write a new key like any other"
        yield Problem(word, what, hint=f"write {word.lstrip('+')}")
    elif word.startswith("~"):
        what = "epochal has no '~': the value $delete removes a key"
        yield Problem(word, what, hint=f"write '{key.lstrip('~')}=$delete'")
    elif equals:
        meant = f"{re.sub(r'[/:]+', '.', key).strip('.')}={value}"
        hint = f"write {meant}" if _OVERRIDE.match(meant) else "write key=value"
        yield Problem(word, f"{key!r} is not a valid key", hint=hint)
    else:
        what = "neither a config file that exists nor key=value"
        files = [word + end for end in (".yaml", ".yml", ".toml", ".json") if _exists(word + end)]
        hint = f"write {word}=VALUE to change a value of the config"
        yield Problem(word, what, hint=f"did you mean {files[0]!r}?" if files else hint)


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json``."""
    add_options(parser, {"--json": "print JSON"})


def add_runs_dir_option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--runs-dir``."""
    text = "folder of the runs (default: runs_dir of the project, or runs)"
    add_options(parser, {"--runs-dir DIR": text})


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the run, and where to look for it."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    add_runs_dir_option(parser)


def print_json(value: object) -> None:
    """Print valid JSON; NaN and infinity become ``"$nan"`` and ``"$inf"``."""
    print(escape_control_json(durable.encode_json(value, indent=2).decode()))


def find_sweep_word(word: str, runs_dir: Path) -> SweepFolder | None:
    """The sweep that a word names; a run with that name wins over a part of a sweep's id."""
    inner = word.removeprefix(f"{SWEEPS_DIR}/")
    if inner == word and not (is_sweep_folder(word) or get_sweeps_dir(runs_dir).is_dir()):
        return None
    from epochal.records.find import read_run
    from epochal.sweep.sweep_folder import find_sweep, list_sweeps

    if is_sweep_folder(word) or inner != word:
        return find_sweep(word if is_sweep_folder(word) else inner, runs_dir)
    sweeps = list_sweeps(runs_dir)
    if not any(word in one.id for one in sweeps):
        return None
    if not any(word == one.id for one in sweeps):
        with suppress(RecordError):
            read_run(word, runs_dir)
            return None
    return find_sweep(word, runs_dir)
