"""The parser of the command line: all verbs, and the options of the chosen verb."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, Protocol, cast, final

from typing_extensions import override

from epochal.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = {
    "new": "create a small project that is ready to run",
    "check": "list all mistakes in configs without building anything",
    "plan": "show what a config will run, in which order and how often",
    "inspect": "inspect the data of a config: fields, labels, duplicates, a page of samples",
    "profile": "profile a few steps: trace, table of operators, advice",
    "find-batch": "find how many samples fit into memory at once",
    "find-lr": "suggest a learning rate from a range test",
    "run": "train the experiments of configs and record them",
    "queue": "queue experiments, and run them on a pool of devices",
    "sweep": "search hyper-parameters; each trial is an ordinary run",
    "stop": "ask a run or a sweep to save and end",
    "launch": "run experiments on this machine or on a cluster, as their section launch says",
    "resume": "continue a run from its newest checkpoint",
    "evaluate": "evaluate the checkpoints of a run, also while it trains",
    "test": "evaluate the weights of a run on its test data",
    "predict": "write the predictions of a run's weights to a file",
    "runs": "list, filter, group and export runs; `runs prune` deletes them",
    "diff": "compare runs: parameters, code, packages, metrics, curves",
    "show": "show one run: status, settings, results, curves",
    "serve": "show the runs in a browser",
    "table": "fill tables of results, typed or linked to runs; export them",
    "mail": "read messages about finished, failed and stalled runs",
    "restore": "restore the code and the config of a run into a new folder",
    "pack": "write a run to one file, local or at a URL such as s3://bucket/run.tar",
    "unpack": "add a packed run to the local runs",
    "describe": "show or change title, description and labels of runs; archive runs",
    "index": "update, rebuild or verify the index that lists of runs use",
    "doctor": "check the machine, and test that kills and full disks lose no checkpoint",
    "schema": "print the JSON Schema of configs, or the options of one component",
    "completion": "print the script that completes commands in bash, zsh or fish",
}

_OTHER_NAMES = {
    **dict.fromkeys(("train", "fit", "start"), "run"),
    **dict.fromkeys(("list", "ls", "ps", "status"), "runs"),
    **dict.fromkeys(("compare", "cmp"), "diff"),
    **dict.fromkeys(("init", "create"), "new"),
    **dict.fromkeys(("validate", "lint"), "check"),
    **dict.fromkeys(("ui", "web"), "serve"),
    **dict.fromkeys(("continue", "restart"), "resume"),
}
"""Verbs of other tools, each with the verb of Epochal that does the same."""

INTERNAL_VERBS = ("run-job",)
"""Verbs that only other verbs call; the help does not list them."""


_TOOLS = (
    *("plan", "inspect", "profile", "find-batch", "find-lr"),
    *("pack", "unpack", "doctor", "schema", "completion"),
)
"""Verbs whose modules are in ``verbs.tools``."""


class Verb(Protocol):
    """The interface of the module of a verb."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments and options of the verb."""

    def execute(self, args: argparse.Namespace) -> int:
        """Run the verb; returns the exit code."""


def find_verb(words: Sequence[str]) -> str | None:
    """The verb among the words of a command line."""
    return next((word for word in words if word in VERBS or word in INTERNAL_VERBS), None)


def parse_arguments(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """The parsed arguments; positional words may also follow options."""
    _require_verb(parser, words)
    args, rest = parser.parse_known_args(_join_dashed_values(parser, words))
    unknown = [word for word in rest if word.startswith("-") or not hasattr(args, "words")]
    if unknown:
        _refuse(parser, args.verb, unknown[0])
    if rest:
        args.words = [*args.words, *rest]
    return args


def _join_dashed_values(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """``--sort -val/acc`` as ``--sort=-val/acc``, since argparse takes -val/acc for an option.

    Options of the verb, and words that begin with --, are never values.
    """
    verb = find_verb(words)
    actions = _parser_of(parser, verb)._actions
    options = {name for action in actions for name in action.option_strings}
    with_value = {
        name for action in actions if action.nargs is None for name in action.option_strings
    }
    joined: list[str] = []
    is_option = False
    for i, word in enumerate(words):
        if word == "--":
            return [*joined, *words[i:]]
        is_value = word.startswith("-") and not word.startswith("--") and word not in options
        if is_option and is_value:
            joined[-1] += f"={word}"
            is_option = False
        else:
            joined.append(word)
            is_option = word in with_value and not is_option
    return joined


def _parser_of(parser: argparse.ArgumentParser, verb: str | None) -> argparse.ArgumentParser:
    verbs = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    chosen: argparse.ArgumentParser = verbs.choices.get(verb or "", parser)
    return chosen


def _require_verb(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Refuse a first word that is no verb; argparse would list all of them."""
    first = next((word for word in words if not word.startswith("-")), None)
    if first is None or first in VERBS or first in INTERNAL_VERBS:
        return
    names = {**{verb: verb for verb in VERBS}, **_OTHER_NAMES}
    close = nearest(first, names)
    hint = f"did you mean {names[close]!r}?" if close else "`epochal --help` lists all verbs"
    parser.error(f"unknown verb {first!r}; {hint}")


def _refuse(parser: argparse.ArgumentParser, verb: str | None, word: str) -> NoReturn:
    chosen = _parser_of(parser, verb)
    shown = [action for action in chosen._actions if action.help != argparse.SUPPRESS]
    options = {name.lstrip("-"): name for action in shown for name in action.option_strings}
    key, _, value = word.lstrip("-").partition("=")
    meant = nearest(key, options) if word.startswith("-") else None
    hint = f"`epochal {verb} --help` lists the options"
    if not word.startswith("-"):
        hint = f"did you mean '--run {word}'?" if "run" in options else ""
    elif "." in key:
        hint = f"write {key}={value or 'VALUE'}"
    elif meant is not None:
        hint = f"did you mean {options[meant]!r}?"
    elif word.startswith("--") and any("key=value" in str(action.metavar) for action in shown):
        hint = f"write SECTION.{key}={value or 'VALUE'} to change the config"
    chosen.error(f"unknown argument {word!r}" + f"; {hint}" * bool(hint))


def build_parser(verb: str | None, *, with_others: bool = True) -> argparse.ArgumentParser:
    """The parser of the command, with the options of ``verb`` only: others are not imported.

    ``with_others``: the other verbs are known, too, for the help and for misspelled verbs.
    """
    parser = argparse.ArgumentParser(
        prog="epochal",
        description="Train PyTorch models from configs.",
        epilog="`epochal VERB --help` explains a verb. Start with `epochal new NAME`.",
    )
    parser.add_argument("--version", action=_Version)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for name, text in VERBS.items():
        if name != verb and not with_others:
            continue
        about = text[0].upper() + text[1:] + "."
        one = verbs.add_parser(name, help=text, description=about, allow_abbrev=False)
        if name == verb:
            load_verb(name).add_arguments(one)
    if verb in INTERNAL_VERBS:
        load_verb(verb).add_arguments(verbs.add_parser(verb, allow_abbrev=False))
    return parser


def load_verb(verb: str) -> Verb:
    """The module of a verb."""
    # Imports only modules of this package; names from configs are imported by the registry.
    module = verb.replace("-", "_")
    if verb in INTERNAL_VERBS:
        return cast("Verb", import_module(f"epochal.cli.{module}"))
    package = "epochal.cli.verbs.tools" if verb in _TOOLS else "epochal.cli.verbs"
    return cast("Verb", import_module(f"{package}.{module}"))


@final
class _Version(argparse.Action):
    """``--version``; reads the package metadata only when needed, because that is slow."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show the version and exit")

    @override
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"epochal {version('epochal')}")
        except PackageNotFoundError:
            print("epochal, run from a source tree that was not installed")
        parser.exit()
