"""``epochal show``: one run, the origin of a setting, or plots of metrics."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from epochal import durable
from epochal.cli.arguments import (
    RUN_HELP,
    add_json_option,
    add_runs_dir_option,
    find_sweep_word,
    print_json,
)
from epochal.cli.draw.chart import Chart, finite_values, render_chart
from epochal.cli.draw.progress import Progress
from epochal.errors import ConfigError, Problem, RecordError, suggest
from epochal.experiment.config.choices import add_options
from epochal.records import RunRecord, explain, read_run
from epochal.records.folder.disk_usage import measure_disk_usage
from epochal.records.folder.labels import read_labels
from epochal.records.layout.os_errors import describe_os_error
from epochal.records.metrics.points import is_epoch_mean
from epochal.records.metrics.system_figures import SYSTEM_PREFIX
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control
from epochal.text.formatting import format_count
from epochal.text.terminal import print_wrapped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from epochal.sweep.sweep_folder import SweepFolder

_BUCKETS = 1200
_SPAN = 1000.0
_SHORT_ID = 4
_UNITS = (("hours", 3600), ("minutes", 60), ("seconds", 1))
_MIN_UNITS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments and options."""
    text = f"{RUN_HELP}; with --plot also several runs; or a sweep, such as sweeps/last"
    parser.add_argument("words", nargs="+", metavar="RUN", help=text)
    add_runs_dir_option(parser)
    text = "plot metrics, such as val/loss, 'train/*' or system/cpu (default: the monitored metric)"
    parser.add_argument("--plot", nargs="*", metavar="NAME", help=text)
    texts = {
        "--png FILE": "save the plot as a PNG file",
        "--explain KEY": "show where a config value was set",
        "--config": "print the expanded config",
        "--log": "print the text log",
    }
    add_options(parser, texts)
    add_json_option(parser)


def execute(args: argparse.Namespace) -> int:
    """Print the run, or the part of it that the options select; or a sweep."""
    if (
        len(args.words) == 1
        and (folder := find_sweep_word(args.words[0], args.runs_dir)) is not None
    ):
        _show_sweep(folder, args)
        return 0
    records = [read_run(word, args.runs_dir) for word in dict.fromkeys(args.words)]
    if args.plot is not None or args.png is not None:
        _plot(records, args.plot or [], args.png)
        return 0
    if len(records) > 1:
        what = f"show takes one run, got {' '.join(args.words)!r}"
        hint = f"`{epochal_command()} diff A B` compares them, --plot plots them together"
        raise ConfigError(Problem("command line", what, hint=hint))
    (record,) = records
    if args.explain is not None:
        text = explain(record, args.explain)  # raises if the key is unknown
        if args.json:
            print_json(_origins(record, args.explain))
        else:
            print(escape_control(text))
    elif args.config:
        paths = sorted((record.path / "config").glob("expanded.*"))
        # A config written to a file must stay the same config.
        _print_files(paths, "expanded config", is_exact=not sys.stdout.isatty())
    elif args.log:
        logs = (path for path in (record.path / "logs").rglob("*") if not path.is_dir())
        _print_files(sorted(logs), "log")
    elif args.json:
        print_json(_to_json(record))
    else:
        from epochal.cli.pages.run_page import describe_run

        print_wrapped(describe_run(record, args.runs_dir))
    return 0


def _show_sweep(folder: SweepFolder, args: argparse.Namespace) -> None:
    from epochal.cli.pages.sweep_page import describe_sweep
    from epochal.sweep.trials import read_trials, to_plain

    for option in ("plot", "png", "explain", "config", "log"):
        if getattr(args, option) not in (None, False):
            what = f"{folder.id} is a sweep, which has no --{option}"
            raise ConfigError(Problem("command line", what, hint="name one of its runs"))
    settings = folder.read_settings()
    trials = read_trials(folder, settings)
    if args.json:
        plain = [to_plain(one, settings) for one in trials.values()]
        print_json({"id": folder.id, "path": str(folder.path), "trials": plain})
    else:
        print_wrapped(describe_sweep(folder, settings, trials.values()))


def _plot(records: list[RunRecord], names: list[str], picture: Path | None) -> None:
    from epochal.cli.draw.png import save_png

    if any(name.startswith(SYSTEM_PREFIX) for name in names):
        chart = chart_system_figures(records, names)
    else:
        with Progress() as progress:
            chart = chart_curves(records, names, progress)
    if picture is None:
        print("\n".join(render_chart(chart)))
    else:
        save_png(chart, picture)
        print(f"written to {picture}")


def _print_files(paths: list[Path], what: str, *, is_exact: bool = False) -> None:
    for path in paths:
        try:
            text = durable.read_text(path).rstrip()
        except OSError as error:
            raise RecordError(f"{path}: {describe_os_error(error)}") from error
        print(text if is_exact else escape_control(text))
    if not paths:
        print(f"this run has no {what}", file=sys.stderr)


def _origins(record: RunRecord, key: str) -> dict[str, object]:
    """The origins of ``key`` and of every key below it, newest first."""
    return {
        known: origins
        for known, origins in record.provenance.items()
        if known == key or known.startswith(f"{key}.")
    }


def _to_json(record: RunRecord) -> dict[str, object]:
    marks = read_labels(record.path)
    return {
        "path": str(record.path),
        "run": dict(record.run),
        "labels": list(marks.labels),
        "archived": marks.is_archived,
        "status": dict(record.status),
        "result": dict(record.result),
        "config": dict(record.expanded),
        "metrics": record.metric_names(),
        "times": record.times,
        "system": {
            name: {"mean": mean, "peak": peak}
            for name, (mean, peak) in record.system.summarise().items()
        },
        "disk": {one.name: one.num_bytes for one in measure_disk_usage(record.path)},
        "folds": [str(fold.path) for fold in record.folds],
        "damage": list(record.damage),
    }


def chart_curves(
    records: Sequence[RunRecord],
    wanted: Sequence[str],
    progress: Callable[[str], None] | None = None,
) -> Chart:
    """The named metrics over the steps; without names the monitored one.

    Patterns such as ``train/*`` are names too. For a single run, every split of the monitored
    metric is drawn.
    """
    from epochal.records.metrics.curve_cache import zoom

    chosen = [_choose(record, wanted, is_alone=len(records) == 1) for record in records]
    names = list(dict.fromkeys(name for own in chosen for name in own))
    titles = _titles(records)
    zooms = {}
    for record, title, own in zip(records, titles, chosen, strict=True):
        for name in own:
            label = title if title and len(names) == 1 else f"{title} {name}".strip()
            zooms[label] = zoom(record.path, name, buckets=_BUCKETS, progress=progress)
    curves = {
        label: dict(zip(found.steps.tolist(), found.mean.tolist(), strict=True))
        for label, found in zooms.items()
    }
    steps = sorted({step for curve in curves.values() for step in curve})
    if not steps:
        paths = ", ".join(str(record.path) for record in records)
        raise RecordError(f"{paths}: no readable point of {', '.join(names)}")
    most = max(int(found.count.max(initial=0)) for found in zooms.values())
    return Chart(
        title=f"{_name_runs(records)}: {', '.join(names)}",
        x=steps,
        lines={name: [curve.get(step) for step in steps] for name, curve in curves.items()},
        x_name="step" if most <= 1 else f"step, means of up to {most:,} points",
        y_name=", ".join(names),
        is_log_y=_spans_decades([one for curve in curves.values() for one in curve.values()]),
    )


def chart_system_figures(records: Sequence[RunRecord], wanted: Sequence[str]) -> Chart:
    """The named system figures over the time since the first sample of each run."""
    metrics = [name for name in wanted if not name.startswith(SYSTEM_PREFIX)]
    if metrics:
        what = f"{metrics[0]!r} is plotted over steps, system figures over time"
        raise ConfigError(Problem("--plot", what, hint="plot them one after the other"))
    curves: dict[str, dict[float, float]] = {}
    for record, title in zip(records, _titles(records), strict=True):
        for name in _match(record, record.system.names, wanted):
            times, values = record.system.series(name)
            curves[f"{title} {name}".strip()] = dict(
                zip(times.tolist(), values.tolist(), strict=True)
            )
    moments = sorted({moment for curve in curves.values() for moment in curve})
    unit, seconds = next((one for one in _UNITS if moments[-1] >= _MIN_UNITS * one[1]), _UNITS[-1])
    return Chart(
        title=f"{_name_runs(records)}: {', '.join(wanted)}",
        x=[moment / seconds for moment in moments],
        lines={name: [curve.get(one) for one in moments] for name, curve in curves.items()},
        x_name=unit,
        y_name=", ".join(wanted),
    )


def _name_runs(records: Sequence[RunRecord]) -> str:
    first = records[0].summary
    return f"{first.tag} ({first.id})" if len(records) == 1 else format_count(len(records), "run")


def _titles(records: Sequence[RunRecord]) -> list[str]:
    """Names that distinguish the runs; empty for a single run."""
    if len(records) == 1:
        return [""]
    short = [f"{one.summary.tag} {one.summary.id[-_SHORT_ID:]}" for one in records]
    return short if len(set(short)) == len(short) else [one.summary.id for one in records]


def _spans_decades(values: Sequence[float]) -> bool:
    finite = finite_values(values)
    return bool(finite) and min(finite) > 0 and max(finite) / min(finite) >= _SPAN


def _choose(record: RunRecord, wanted: Sequence[str], *, is_alone: bool) -> list[str]:
    known = record.metric_names()
    if not known:
        raise RecordError(f"{record.path}: has no metrics to plot")
    if not wanted:
        return _important(record, known, is_alone=is_alone)
    return _match(record, known, wanted)


def _match(record: RunRecord, known: list[str], wanted: Sequence[str]) -> list[str]:
    """The known names that match the wanted ones; each must match one."""
    names: list[str] = []
    for one in wanted:
        found = [name for name in known if fnmatchcase(name, one)]
        if not found:
            hint = suggest(one, known) or f"it has {', '.join(known[:8]) or 'none'}"
            raise RecordError(f"{record.path}: no metric {one!r}\n  {hint}")
        names += found
    return list(dict.fromkeys(names))


def _important(record: RunRecord, known: list[str], *, is_alone: bool) -> list[str]:
    """The monitored metric, else the loss; for a single run, in all splits."""
    monitor = record.run.get("monitor")
    losses = [one for one in known if one.rpartition("/")[2] == "loss"]
    name = monitor if monitor in known else [*losses, *known][0]
    kind = name.rpartition("/")[2]
    alike = [one for one in known if one.rpartition("/")[2] == kind]
    alike = [one for one in alike if not is_epoch_mean(one)] or [name]
    return alike if is_alone else [name]
