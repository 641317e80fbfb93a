"""``epochal find-lr``: a learning rate range test, and the learning rate it suggests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from epochal.cli.arguments import add_config_arguments, print_json, split_single_file
from epochal.cli.draw.chart import Chart, render_chart
from epochal.cli.draw.png import save_png
from epochal.cli.draw.progress import Progress
from epochal.experiment.config.choices import add_options, read_choices
from epochal.experiment.record.failure import show_error
from epochal.text.formatting import format_count
from epochal.text.interrupts import deferring_interrupts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from epochal.experiment.tools.find_lr import LrSearchResult

_ROOM = 1.25  # the chart ends this much above the loss of the first steps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_config_arguments(parser, takes_all=False)
    texts = {
        "--min LR": "first learning rate (default: 1e-8)",
        "--max LR": "last learning rate (default: 1)",
        "--steps N": "number of steps (default: 100)",
        "--png FILE": "also save the chart as a PNG file",
    }
    add_options(parser, texts, min=1e-8, max=1.0, steps=100)


def execute(args: argparse.Namespace) -> int:
    """Run the test, draw the losses and print the suggested change."""
    path, overrides = split_single_file(args.words, "find-lr")
    with deferring_interrupts():
        from epochal.experiment.tools.find_lr import find_lr

    try:
        with Progress() as progress:
            found = find_lr(
                path,
                min_lr=args.min,
                max_lr=args.max,
                steps=args.steps,
                overrides=overrides,
                on_step=lambda step, lr, loss: progress(
                    f"step {step}/{args.steps}  lr {_rate(lr)}  loss {loss:.4g}"
                ),
                **read_choices(args),
            )
    except Exception as error:
        return show_error(error)
    if args.png and len(found.losses) > 1:
        save_png(_chart(found), args.png)
    if args.json:
        print_json(found.to_json())
    else:
        print("\n".join(_describe(found, args)))
    return found.result.exit_code or (0 if found.suggestion is not None else 1)


def _describe(found: LrSearchResult, args: argparse.Namespace) -> Iterator[str]:
    if len(found.losses) > 1:
        chart = _chart(found)
        # A terminal has too few dots to show the noise.
        yield from render_chart(replace(chart, lines={"loss": found.smoothed}))
        yield ""
    count = format_count(len(found.losses), "step")
    is_cut = found.result.exit_code != 0
    reason = "interrupted" if is_cut else found.reason
    yield f"  taken    {count} of {args.steps:,}" + f": {reason}" * bool(reason)
    if is_cut:
        return
    if found.suggestion is None:
        yield "  no suggestion: the loss does not fall anywhere"
        yield "  try a wider range (--min, --max) or more --steps, and check the data"
    else:
        assert found.tenth is not None  # both or none are set
        yield f"  found    {_rate(found.suggestion)}, where the loss falls fastest"
        yield f"  or       {_rate(found.tenth)}, a tenth of the rate with the lowest loss"
        yield f"  now      {_rate(found.base)}"
        for index, (key, value) in enumerate(found.changes.items()):
            yield f"  {'' if index else 'write':<8} {key}={_rate(value)}"
    if args.png and len(found.losses) > 1:
        yield f"  picture  {args.png}"


def _chart(found: LrSearchResult) -> Chart:
    points = {}
    if found.suggestion is not None and found.tenth is not None:
        points = {
            f"steepest {_rate(found.suggestion)}": found.suggestion,
            f"a tenth of the lowest {_rate(found.tenth)}": found.tenth,
        }
    start = max(found.smoothed[: max(1, len(found.smoothed) // 2)])
    return Chart(
        title=f"{found.tag} on {found.device}: loss by learning rate",
        x=found.lrs,
        lines={"loss": found.losses, "smoothed": found.smoothed},
        x_name="learning rate",
        y_name="loss",
        is_log_x=True,
        points=points,
        top=start * _ROOM if start > 0 else None,
    )


def _rate(value: float) -> str:
    """A learning rate as people write it: ``3.2e-4``, ``1e-3``."""
    digits, _, power = f"{value:.1e}".partition("e")
    return f"{digits.removesuffix('.0')}e{int(power)}"
