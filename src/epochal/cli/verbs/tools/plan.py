"""``epochal plan``: shows what a config will run, without training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.cli.arguments import add_config_arguments, print_json, split_files_and_overrides
from epochal.cli.draw.chart import Chart, render_chart
from epochal.cli.draw.png import save_png
from epochal.cli.draw.text_table import format_table
from epochal.errors import ConfigError, Problem
from epochal.experiment.config.choices import add_choices, add_options, read_choices
from epochal.experiment.record.failure import show_error
from epochal.text.formatting import format_count, format_seconds, format_value
from epochal.text.interrupts import deferring_interrupts
from epochal.text.terminal import print_wrapped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from epochal.engine.stages.transition import StageRow
    from epochal.experiment.tools.plan_run import GroupRow, RunPlan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    add_config_arguments(parser)
    texts = {
        "--plot": "plot the learning rate instead",
        "--png FILE": "also save the plot as a PNG file",
    }
    add_options(parser, texts)
    add_choices(parser, "--gpus", "--nproc")


def execute(args: argparse.Namespace) -> int:
    """Build the parts of every file and print its plan."""
    files, overrides = split_files_and_overrides(args.words, "plan")
    with deferring_interrupts():
        from epochal.experiment.tools.plan_run import plan_file

    try:
        plans = [
            planned
            for path in files
            for planned in plan_file(
                path,
                overrides=overrides,
                is_drawn=bool(args.plot or args.png),
                **read_choices(args),
            )
        ]
    except Exception as error:
        return show_error(error)
    if args.png:
        save_png(_chart(_only(plans)), args.png)
    if args.json:
        print_json([planned.to_json() for planned in plans])
    else:
        for number, planned in enumerate(plans):
            print("\n" * bool(number), end="")
            if args.plot:
                print("\n".join(_draw(planned)))
            else:
                print_wrapped(_describe(planned))
        if args.png:
            print(f"\nwritten to {args.png}")
    return 0


def _only(plans: Sequence[RunPlan]) -> RunPlan:
    if len(plans) != 1:
        what = f"--png takes one plan, got {len(plans)}"
        raise ConfigError(Problem("command line", what, hint="name one file and one --variant"))
    return plans[0]


def _draw(planned: RunPlan) -> Iterator[str]:
    yield from render_chart(_chart(planned))
    if planned.rates is not None and planned.rates.note:
        yield f"  note: {planned.rates.note}"


def _chart(planned: RunPlan) -> Chart:
    rates = planned.rates
    if rates is None:
        what = f"{planned.title}: nothing is trained, so there is no learning rate to plot"
        raise ConfigError(Problem("command line", what, hint="leave out --plot and --png"))
    return Chart(
        title=f"{planned.title}: learning rate",
        x=rates.steps,
        lines=rates.rates,
        x_name="step",
        y_name="learning rate",
        ticks={"evaluation": rates.evaluations} if rates.evaluations else {},
        borders=dict(rates.stages),
    )


def _describe(planned: RunPlan) -> Iterator[str]:
    limits = planned.limits
    totals = [
        format_count(limits.epochs, "epoch") if limits.epochs is not None else "",
        format_count(limits.steps, "step") if limits.steps is not None else "",
        f"at most {format_seconds(limits.seconds)}" if limits.seconds is not None else "",
    ]
    yield planned.title
    yield f"  runner   {planned.runner} on {planned.ranks or planned.device}"
    yield f"  length   {', '.join(total for total in totals if total) or 'as the runner decides'}"
    yield f"  model    {planned.model}"
    facts = {
        "optim": planned.optimizer,
        "loss": planned.loss,
        "average": planned.average,
        "step": planned.step,
        "data": planned.data or "none",
        "evaluate": planned.evaluate,
        "save": planned.save,
        "trackers": planned.trackers,
        "note": planned.note,
    }
    yield from (f"  {name:<8} {fact}" for name, fact in facts.items() if fact)
    if planned.groups:
        yield ""
        yield from _describe_groups(planned.groups)
    if planned.stages:
        yield ""
        yield from _describe_stages(planned.stages)
    yield ""
    yield "events, in this order:"
    rows = [(f"  {row.event}", str(row.priority), row.hook, row.cadence) for row in planned.rows]
    yield format_table(("  event", "priority", "hook", "how often"), rows)
    yield ""
    yield f"{format_count(len(planned.defaults), 'value')} filled in by default:"
    defaults = [(f"  {one.key}", f"{one.value!r}", one.owner) for one in planned.defaults]
    yield format_table(("  key", "value", "default of"), defaults)


def _describe_stages(stages: Sequence[StageRow]) -> Iterator[str]:
    yield "stages and their changes:"
    rows = [
        (
            f"  {row.name}",
            "?" if row.first_step is None else f"{row.first_step:,}",
            row.end,
            ", ".join(row.changes),
        )
        for row in stages
    ]
    yield format_table(("  stage", "from step", "for", "changes"), rows)


def _describe_groups(groups: Sequence[GroupRow]) -> Iterator[str]:
    yield "parameter groups:"
    rows = [["  group", "lr", "weight decay", "tensors", "parameters", "other options", "rule"]]
    for row in groups:
        others = ", ".join(f"{name}={value}" for name, value in row.options.items())
        numbers = (format_value(row.lr), format_value(row.weight_decay))
        sizes = (f"{row.tensors:,}", f"{row.parameters:,}")
        rows.append([f"  {row.name}", *numbers, *sizes, others, row.rule])
    if not any(row.options for row in groups):
        rows = [[*cells[:5], cells[6]] for cells in rows]
    yield format_table(rows[0], rows[1:])
