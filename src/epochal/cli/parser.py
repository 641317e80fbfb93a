"""The words of the command line: every verb, and the options of the one that was typed."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, Protocol, cast, final

from typing_extensions import override

from epochal.errors import suggest

if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = {
    "new": "write a small project that runs as it is",
    "check": "report every mistake of a config, before anything is built",
    "plan": "show what a config will run, in which order, how often",
    "profile": "look closely at a few steps: a trace, a table of operators, advice",
    "find-batch": "find how many samples fit into memory at once",
    "find-lr": "find a learning rate by steps with a growing one",
    "run": "train what a config describes, and keep a record",
    "resume": "go on with a run where its newest checkpoint left it",
    "test": "evaluate the weights of a finished run on its test data",
    "predict": "write the predictions of a finished run",
    "runs": "list runs",
    "diff": "say how runs differ: parameters, code, packages, metrics, where curves part",
    "show": "show one run: status, configuration, results, where a value came from",
    "mail": "read what happened to runs while nobody looked",
    "restore": "lay the code and the config of a run back, so that it can run again",
    "describe": "read or write what a run is for",
    "index": "bring the index of all runs up to date, which lists of runs are made from",
    "doctor": "prove that a kill or a full disk costs no checkpoint here; look at the machine",
    "schema": "print the JSON Schema of configs, or the options of one component",
}


class Verb(Protocol):
    """What each verb's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's words and options."""

    def execute(self, args: argparse.Namespace) -> int:
        """Do it; gives the exit code."""


def parse_arguments(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Parse; words may also follow options, which argparse alone does not take from a verb."""
    args, rest = parser.parse_known_args(_join_dashed_values(parser, words))
    if len(rest) == 1 and not rest[0].startswith("-") and getattr(args, "text", "") is None:
        args.text = rest.pop()
    strange = [word for word in rest if word.startswith("-") or not hasattr(args, "words")]
    if strange:
        _refuse(parser, args.verb, strange[0])
    if rest:
        args.words = [*args.words, *rest]
    return args


def _join_dashed_values(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """``--sort -val/acc`` as ``--sort=-val/acc``: argparse takes what begins with - for an option.

    What is an option stays one, and what begins with -- is a misspelt one.
    """
    verb = next((word for word in words if word in VERBS), None)
    actions = _parser_of(parser, verb)._actions
    options = {name for action in actions for name in action.option_strings}
    takers = {name for action in actions if action.nargs is None for name in action.option_strings}
    tied: list[str] = []
    is_option = False
    for i, word in enumerate(words):
        if word == "--":
            return [*tied, *words[i:]]
        is_value = word.startswith("-") and not word.startswith("--") and word not in options
        if is_option and is_value:
            tied[-1] += f"={word}"
            is_option = False
        else:
            tied.append(word)
            is_option = word in takers and not is_option
    return tied


def _parser_of(parser: argparse.ArgumentParser, verb: str | None) -> argparse.ArgumentParser:
    verbs = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    chosen: argparse.ArgumentParser = verbs.choices.get(verb or "", parser)
    return chosen


def _refuse(parser: argparse.ArgumentParser, verb: str | None, word: str) -> NoReturn:
    chosen = _parser_of(parser, verb)
    shown = [action for action in chosen._actions if action.help != argparse.SUPPRESS]
    options = [name for action in shown for name in action.option_strings]
    hint = suggest(word.partition("=")[0], options) if word.startswith("-") else ""
    if "." in word.partition("=")[0]:
        key, _, value = word.lstrip("-").partition("=")
        hint = f"write {key}={value or 'VALUE'}"
    chosen.error(f"{word!r} is not something it takes" + f"; {hint}" * bool(hint))


def build_parser(verb: str | None) -> argparse.ArgumentParser:
    """The parser of the whole command, with the options of ``verb`` filled in."""
    parser = argparse.ArgumentParser(
        prog="epochal",
        description="Trains PyTorch models from configuration.",
        epilog="`epochal VERB --help` explains a verb; `epochal new NAME` is a good start.",
    )
    parser.add_argument("--version", action=_Version)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for name, text in VERBS.items():
        about = text.capitalize() + "."
        one = verbs.add_parser(name, help=text, description=about, allow_abbrev=False)
        if name == verb:
            load_verb(name).add_arguments(one)
    return parser


def load_verb(verb: str) -> Verb:
    """The module of a verb."""
    # The verbs are our own modules, listed above: this resolves no name that a user wrote.
    return cast("Verb", import_module(f"epochal.cli.verbs.{verb.replace('-', '_')}"))


@final
class _Version(argparse.Action):
    """``--version``, looked up only when asked for: reading package metadata takes time."""

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
