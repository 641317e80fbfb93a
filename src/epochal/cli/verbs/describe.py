"""``epochal describe``: shows or changes the title and the description of a run."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from epochal.cli.arguments import add_json_option, add_run_argument, print_json
from epochal.experiment.config.choices import add_options
from epochal.records import read_run
from epochal.records.folder.readme import README_FILE, RunReadme, read_readme, write_readme
from epochal.text.escape import escape_control

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_run_argument(parser)
    text = "the new text; `-` reads it from standard input"
    parser.add_argument("text", nargs="?", metavar="TEXT", help=text)
    texts = {"--tag TITLE": "the new title", "--add": "append the text instead of replacing it"}
    add_options(parser, texts)
    add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Write the changes, if any, and print the page."""
    record = read_run(args.run, args.runs_dir)
    before = read_readme(record.path)
    page = before if before.title else replace(before, title=record.summary.tag)
    after = _changed(page, args)
    if after != page:
        write_readme(record.path, after)
    if args.json:
        file = record.path / README_FILE
        print_json(
            {"run": record.summary.id, "title": after.title, "text": after.text, "file": file}
        )
    else:
        print(escape_control(f"# {after.title}\n\n{after.text}".rstrip()))
    return 0


def _changed(page: RunReadme, args: argparse.Namespace) -> RunReadme:
    text = sys.stdin.read() if args.text == "-" else args.text
    if text is not None:
        whole = f"{page.text}\n\n{text}".strip() if args.add else text.strip()
        page = replace(page, text=whole)
    return page if args.tag is None else replace(page, title=args.tag)
