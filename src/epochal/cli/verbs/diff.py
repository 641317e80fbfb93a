"""``epochal diff``: compares two or more runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.cli.arguments import add_json_option, add_runs_dir_option, print_json
from epochal.cli.draw.progress import Progress
from epochal.cli.pages.diff import describe_comparison
from epochal.errors import ConfigError, Problem, suggest
from epochal.experiment.config.choices import add_options
from epochal.records.compare import SECTIONS, diff
from epochal.records.compare.curves import TOLERANCE

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    text = "two or more runs: folders, ids, parts of ids, or `last`"
    parser.add_argument("words", nargs="+", metavar="RUN", help=text)
    texts = {
        "--only NAMES": f"comma-separated sections: {', '.join(SECTIONS)}",
        "--all": "show everything in full",
        "--tolerance SHARE": f"relative difference of curves to ignore (default: {TOLERANCE})",
    }
    add_options(parser, texts, tolerance=TOLERANCE)
    add_runs_dir_option(parser)
    add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Print the comparison."""
    sections = _parse_sections(args.only)
    with Progress() as progress:
        found = diff(*args.words, root=args.runs_dir, tolerance=args.tolerance, progress=progress)
        if "metrics" in sections:
            _ = found.groups  # the search may take long
    if args.json:
        print_json(found.to_json(sections))
    else:
        for line in describe_comparison(found, sections, words=args.words, has_all=args.all):
            print(line)
    return 0


def _parse_sections(text: str | None) -> tuple[str, ...]:
    if text is None:
        return SECTIONS
    names = [name.strip() for name in text.split(",") if name.strip()]
    problems = [
        Problem("--only", f"unknown section {name!r}", hint=suggest(name, SECTIONS))
        for name in names or [text]
        if name not in SECTIONS
    ]
    if problems:
        raise ConfigError(*problems)
    return tuple(name for name in SECTIONS if name in names)
