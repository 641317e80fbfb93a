"""``epochal inspect``: reads samples of the data of a config, and shows them on a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from epochal.cli.arguments import add_config_arguments, print_json, split_single_file
from epochal.cli.draw.text_table import format_table
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import add_options, read_choices
from epochal.experiment.record.failure import show_error
from epochal.text.formatting import format_count
from epochal.text.interrupts import deferring_interrupts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from epochal.inspect.inspect_data import DataInspection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    parser.prog += " data"  # the only thing that can be inspected; the first word says it
    add_config_arguments(parser, takes_all=False)
    texts = {
        "--samples N": "samples to read of each split (default: 1000)",
        "--show N": "samples to show of each split (default: 24)",
        "--out DIR": "folder for data.html and pictures (default: inspect-TAG)",
    }
    add_options(parser, texts, samples=1000, show=24)


def execute(args: argparse.Namespace) -> int:
    """Read samples, print what was found, and write the page."""
    if args.words[:1] != ["data"]:
        what = (
            f"can inspect data, not {args.words[0]!r}"
            if args.words
            else "needs something to inspect"
        )
        raise ConfigError(Problem("command line", what, hint="write epochal inspect data FILE"))
    path, overrides = split_single_file(args.words[1:], "inspect data")
    with deferring_interrupts():
        from epochal.inspect.inspect_data import inspect_file
    try:
        found = inspect_file(
            path,
            limit=max(args.samples, 1),
            examples=max(args.show, 0),
            overrides=overrides,
            **read_choices(args),
        )
    except Exception as error:
        return show_error(error)
    folder = Path(args.out or f"inspect-{found.title}")
    if args.json:
        page = found.write(folder)
        splits = {report.name: report.to_json() for report in found.reports}
        print_json({"page": str(page), "splits": splits, "warnings": found.warnings})
    else:
        print("\n".join(_describe(found)))  # before a folder that cannot be written
        print(f"page: {found.write(folder)}")
    return 0


def _by_count(entry: tuple[str, int]) -> tuple[int, int, str]:
    """The most frequent labels first; equally frequent ones in their order, 9 before 10."""
    label, count = entry
    return -count, len(label), label


def _describe(found: DataInspection) -> Iterator[str]:
    for report in found.reports:
        size = "of unknown size"
        if report.num_samples is not None:
            size = format_count(report.num_samples, "sample")
        yield f"{report.name}: {size}, {report.num_read:,} read"
        rows = [
            [
                name,
                one.dtype,
                one.describe_shapes(),
                f"{one.least:.6g} to {one.most:.6g} {one.unit}".rstrip() if one.num_values else "",
            ]
            for name, one in report.fields.items()
        ]
        table = format_table(["field", "type", "shapes", "range"], rows)
        yield from (f"  {line}".rstrip() for line in table.splitlines())
        for name, counts in report.labels.items():
            few = sorted(counts.items(), key=_by_count)[:10]
            shown = ", ".join(f"{label or repr(label)} ({count})" for label, count in few)
            yield f"  balance of {name}: {shown}{', ...' if len(counts) > 10 else ''}"
    yield from (f"warning: {one}" for one in found.warnings)
