"""``epochal find-batch``: finds how many samples fit into memory, by trying real steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.cli.arguments import add_config_arguments, print_json, split_single_file
from epochal.cli.draw.text_table import format_table
from epochal.experiment.config.choices import add_options, read_choices
from epochal.experiment.record.failure import show_error
from epochal.text.formatting import format_count
from epochal.text.interrupts import deferring_interrupts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from epochal.experiment.tools.find_batch import BatchSearchResult

_MIB = 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_config_arguments(parser, takes_all=False)
    add_options(parser, {"--limit N": "try at most N samples (default: all training samples)"})


def execute(args: argparse.Namespace) -> int:
    """Search, and print the suggested change."""
    path, overrides = split_single_file(args.words, "find-batch")
    with deferring_interrupts():
        from epochal.experiment.tools.find_batch import find_batch

    try:
        found = find_batch(path, limit=args.limit, overrides=overrides, **read_choices(args))
    except Exception as error:
        return show_error(error)
    if args.json:
        print_json(found.to_json())
    else:
        print("\n".join(_describe(found)))
    return 0 if found.samples else 1


def _describe(found: BatchSearchResult) -> Iterator[str]:
    yield f"{found.tag} on {found.device}"
    rows = [
        (f"  {one.samples:,}", "yes" if one.fits else "no", _mebibytes(one.peak))
        for one in found.tries
    ]
    yield format_table(("  samples", "fit", "memory"), rows)
    yield ""
    if not found.samples:
        yield "not even one sample fits; engine.recompute and engine.precision=bf16 need less"
        return
    each = found.bytes_per_sample
    cost = "" if each is None else f", {_mebibytes(each)} each"
    is_all = found.samples == found.limit
    least = " or more" if is_all else ""
    yield f"{format_count(found.samples, 'sample')}{least} fit at once{cost}"
    yield from (f"  {line}" for line in _advise(found))


def _advise(found: BatchSearchResult) -> Iterator[str]:
    size = found.batch_size
    if size is None or size > found.samples:
        yield f"write engine: {{microbatch: {found.advice}}}, which gives the same training"
    else:
        yield f"batches of {size:,} fit as they are"
        if size < found.advice:
            yield f"there is room for batches of up to {found.advice:,}"


def _mebibytes(size: float | None) -> str:
    return "" if size is None else f"{size / _MIB:,.1f} MiB"
