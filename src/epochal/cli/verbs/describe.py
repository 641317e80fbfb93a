"""``epochal describe``: shows or changes title, description and labels of runs; archives runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from epochal.cli.arguments import RUN_HELP, add_json_option, add_runs_dir_option, print_json
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import add_options
from epochal.records import read_run
from epochal.records.folder.labels import (
    RunLabels,
    change_labels,
    check_labels,
    read_labels,
    split_labels,
)
from epochal.records.folder.readme import README_FILE, RunReadme, read_readme, write_readme
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from epochal.records import RunRecord

_MARKS = ("label", "unlabel", "archive", "unarchive")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    parser.usage = (
        "epochal describe RUN [TEXT] [--tag TITLE] [--add] [--json]\n"
        "       epochal describe RUN... [--label NAMES] [--unlabel NAMES] [--archive | --unarchive]"
    )
    text = f"{RUN_HELP}; then the new text, or - to read it from standard input"
    parser.add_argument("words", nargs="+", metavar="RUN", help=text)
    add_runs_dir_option(parser)
    texts = {
        "--tag TITLE": "the new title",
        "--add": "append the text instead of replacing it",
        "--label NAMES": "add labels to runs, such as `baseline` or `paper, figure 2`",
        "--unlabel NAMES": "remove labels from runs",
        "--archive": "hide runs from lists, unless --archived is given",
        "--unarchive": "show runs in lists again",
    }
    add_options(parser, texts)
    add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Write the changes, if any, and print the page."""
    if any(getattr(args, name) not in (None, False) for name in _MARKS):
        return _mark(args)
    if len(args.words) > 2:
        what = f"takes one run and one text, got {len(args.words)} words"
        hint = "quote the text; --label, --archive and their opposites take several runs"
        raise ConfigError(Problem("describe", what, hint=hint))
    record = read_run(args.words[0], args.runs_dir)
    before = read_readme(record.path)
    page = before if before.title else replace(before, title=record.summary.tag)
    after = _changed(page, args)
    if after != page:
        write_readme(record.path, after)
    marks = read_labels(record.path)
    if args.json:
        page_json = {"title": after.title, "text": after.text, "file": record.path / README_FILE}
        print_json({"run": record.summary.id, **page_json, **_marks_to_json(marks)})
    else:
        end = _describe_marks(marks)
        parts = [f"# {after.title}", after.text, f"({end})" if end else ""]
        print(escape_control("\n\n".join(filter(None, parts))))
    return 0


def _changed(page: RunReadme, args: argparse.Namespace) -> RunReadme:
    text = args.words[1] if len(args.words) > 1 else None
    text = sys.stdin.read() if text == "-" else text
    if text is not None:
        whole = f"{page.text}\n\n{text}".strip() if args.add else text.strip()
        page = replace(page, text=whole)
    return page if args.tag is None else replace(page, title=args.tag)


def _mark(args: argparse.Namespace) -> int:
    """Label or archive several runs; nothing changes if a run is unknown or a label is invalid."""
    for option in ("tag", "add"):
        if getattr(args, option) not in (None, False):
            what = "cannot be combined with labels and archiving, which take several runs"
            hint = f"write {epochal_command()} describe RUN TEXT --{option} ... for it"
            raise ConfigError(Problem(f"--{option}", what, hint=hint))
    if text := next((word for word in args.words if " " in word), None):
        what = "a text does not go with labels and archiving, which take several runs"
        hint = f"write {epochal_command()} describe RUN TEXT for it"
        raise ConfigError(Problem(repr(text), what, hint=hint))
    if args.archive and args.unarchive:
        what = "contradicts --unarchive"
        raise ConfigError(Problem("--archive", what, hint="leave out one of them"))
    add = check_labels(split_labels(args.label), "--label")
    remove = split_labels(args.unlabel)
    records = [read_run(word, args.runs_dir) for word in dict.fromkeys(args.words)]
    is_archived = args.archive if args.archive or args.unarchive else None
    found = [
        change_labels(record.path, add=add, remove=remove, is_archived=is_archived)
        for record in records
    ]
    if args.json:
        print_json(_to_json(records, found))
        return 0
    for record, marks in zip(records, found, strict=True):
        print(escape_control(f"{record.summary.id}: {_describe_marks(marks) or 'no labels'}"))
    return 0


def _to_json(records: Sequence[RunRecord], found: Sequence[RunLabels]) -> list[dict[str, object]]:
    return [
        {"run": record.summary.id, **_marks_to_json(marks)}
        for record, marks in zip(records, found, strict=True)
    ]


def _marks_to_json(marks: RunLabels) -> dict[str, object]:
    return {"labels": list(marks.labels), "archived": marks.is_archived}


def _describe_marks(marks: RunLabels) -> str:
    labels = f"labels: {marks.text}" if marks.labels else ""
    return "; ".join(filter(None, (labels, "archived" * marks.is_archived)))
