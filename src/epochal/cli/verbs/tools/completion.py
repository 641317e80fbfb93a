"""``epochal completion``: prints the script that completes commands in bash, zsh or fish.

The script completes verbs and options by itself. For keys, variants and runs it calls this verb
again, on each press of Tab. Configs are scanned here without the YAML parser, and runs are found
without the module that reads them: importing these takes too long for a keystroke.
"""

from __future__ import annotations

import argparse
import os
import re
from importlib import import_module
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from epochal.cli.pages.completion_script import VerbWords

_SHELLS = ("bash", "zsh", "fish")
_RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
_PLAIN = re.compile(r"[\w.,:=@%+-]+")
"""Words that shells leave as they are; bash would execute a folder named ``$(...)``."""

_MAX_DEPTH = 4  # runs/project/tag/id
_KEY = re.compile(r"""(["']?)([\w$.-]+)\1:(?:\s+(.*))?$""")
_FLOW_TOKEN = re.compile(r""""[^"]*"|'[^']*'|[{}\[\],]|[^{}\[\],"']+""")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    lists = ("keys", "variants", "runs")
    parser.add_argument(
        "what",
        choices=(*_SHELLS, *lists),
        metavar="SHELL",
        help="bash, zsh or fish",
    )
    parser.add_argument("typed_words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def execute(args: argparse.Namespace) -> int:
    """Print a shell's script, or what the script asks for: one word per line."""
    if args.what in _SHELLS:
        from epochal.cli.pages.completion_script import write_script

        print(write_script(args.what, _verbs(), _section_keys()), end="")
        return 0
    words: list[str] = args.typed_words
    if args.what == "runs":
        found = {"last", *_run_names(_runs_dir(words))}
    else:
        keys = {key for word in words for key, _ in _read_entries(Path(word), ())}
        found = {key for key in keys if not key.startswith(("variants.", "$BASE"))}
        if args.what == "variants":
            names = {key.split(".")[1] for key in keys if key.startswith("variants.")}
            found = {"all", "base,all"} | names
    for word in sorted(filter(_PLAIN.fullmatch, found)):
        print(word)
    return 0


def _verbs() -> dict[str, VerbWords]:
    from epochal.cli.pages.completion_script import read_words

    verbs, folder = {}, Path(__file__).parents[1]
    for file in sorted(folder.rglob("*.py"), key=attrgetter("stem")):
        path = file.relative_to(folder).with_suffix("")
        module = import_module(".".join(("epochal.cli.verbs", *path.parts)))
        verb = file.stem.replace("_", "-")
        title, _, about = (module.__doc__ or "").partition(": ")
        if title == f"``epochal {verb}``":
            parser = argparse.ArgumentParser()
            module.add_arguments(parser)
            verbs[verb] = read_words(parser, about.partition("\n")[0].rstrip("."))
    return verbs


def _section_keys() -> list[str]:
    """The options of all sections, whether the config sets them or not."""
    from epochal.check import SECTIONS
    from epochal.check.sections.sections import section_signature
    from epochal.registry import Project, Registry

    finder = Registry(Project(Path.cwd())).finder
    keys = [name for name, section in SECTIONS.items() if section.shape == "value"]
    for name, section in SECTIONS.items():
        if section.shape in ("options", "spec"):
            own = section_signature(section, finder)
            keys += [f"{name}.{item.name}" for item in own.parameters]
            keys += [f"{name}.type"] if section.shape == "spec" else []
    return sorted(keys)


def _runs_dir(words: list[str]) -> str:
    from epochal.errors import ConfigError
    from epochal.registry.project_file import RUNS_DIR, get_runs_dir

    for word, value in pairwise([*words, ""]):
        if word.startswith("--runs-dir="):
            return word.partition("=")[2]
        if word == "--runs-dir" and value:
            return value
    try:
        return str(get_runs_dir())
    except ConfigError:  # the project file is broken
        return str(RUNS_DIR)


def _run_names(folder: str, depth: int = _MAX_DEPTH) -> Iterator[str]:
    try:
        entries = [entry for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return
    for entry in entries:
        if _RUN_ID.fullmatch(entry.name):
            yield entry.name
            if depth < _MAX_DEPTH:
                yield os.path.basename(folder)  # noqa: PTH119 - quick; the tag
        elif depth and not entry.name.startswith("."):
            yield from _run_names(entry.path, depth - 1)


def _read_entries(path: Path, above: tuple[Path, ...]) -> Iterator[tuple[str, str]]:
    """The keys of a config and its bases, each with its value as text; nothing if unreadable."""
    if path.suffix not in (".yaml", ".yml", ".toml", ".json") or path in above:
        return
    try:
        text = path.read_text(encoding="utf-8-sig")
        entries = list(_scan(text, path.suffix))
    except (OSError, ValueError):
        return
    yield from entries
    for key, value in entries:
        if re.fullmatch(r"\$BASE(\.\d+)?", key):
            yield from _read_entries(path.parent / value.strip("\"'"), (*above, path))


def _scan(text: str, suffix: str) -> Iterator[tuple[str, str]]:
    if suffix == ".json":
        import json

        return _flatten(json.loads(text), "")
    if suffix == ".toml":
        import tomllib

        return _flatten(tomllib.loads(text), "")
    return _scan_yaml(text)


def _flatten(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        value = {str(index): child for index, child in enumerate(value)}
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _flatten(child, f"{path}.{key}" if path else key)
    else:
        yield path, str(value)


def _scan_yaml(text: str) -> Iterator[tuple[str, str]]:
    """The keys with values, found by their indentation."""
    above: list[tuple[int, str]] = []
    lengths: dict[str, int] = {}
    text_column = -1  # of the key of a text of several lines
    for line in text.splitlines():
        rest = re.sub(r"(^|\s)#.*", "", line).rstrip()
        body = rest.lstrip()
        column = len(rest) - len(body)
        if not body or (text_column >= 0 and column > text_column):
            continue
        is_item = f"{body} ".startswith("- ")
        # A list may follow its key without indentation.
        while above and above[-1][0] >= column:
            if is_item and above[-1][0] == column and not above[-1][1].isdigit():
                break
            above.pop()
        while body.startswith("- "):
            index = lengths.get(_join(above), 0)
            lengths[_join(above)] = index + 1
            above.append((column, str(index)))
            column, body = column + len(body) - len(body[2:].lstrip()), body[2:].lstrip()
        found = _KEY.match(body)
        value = body
        if found is not None:
            above.append((column, found[2]))
            value = found[3] or ""
        text_column = column if value[:1] in ("|", ">") else -1
        yield from _scan_flow(_join(above), value)


def _join(above: list[tuple[int, str]]) -> str:
    return ".".join(name for _, name in above)


def _scan_flow(path: str, text: str) -> Iterator[tuple[str, str]]:
    """The keys with values in ``{a: 1, b: [2, 3]}``; for other values ``path`` itself."""
    if text[:1] not in ("{", "["):
        yield from [(path, text)] if text else []
        return
    around: list[tuple[str, str]] = []
    lengths: list[int] = []
    for token in map(str.strip, _FLOW_TOKEN.findall(text)):
        if token in ("{", "["):
            around.append((path, token))
            lengths.append(0)
            path = f"{path}.0" if token == "[" else path
        elif token in ("}", "]") and around:
            path, _ = around.pop()
            lengths.pop()
        elif token == "," and around:
            lengths[-1] += 1
            path = f"{around[-1][0]}.{lengths[-1]}" if around[-1][1] == "[" else around[-1][0]
        elif token and around:
            key, colon, value = token.partition(":")
            if around[-1][1] == "{" and colon and token[0] not in "\"'":
                path = f"{around[-1][0]}.{key.strip()}"
                token = value.strip()
            if token:
                yield path, token
