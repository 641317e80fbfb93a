"""What a sweep shows: running trials and the best so far, and a summary at its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self, final

from epochal.cli.draw.table import format_table
from epochal.cli.pages.pool_page import HINTS
from epochal.sweep.trials import rank_trials
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control
from epochal.text.formatting import format_count, format_seconds, format_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.live import Live

    from epochal.launch.pool.pool import Pool
    from epochal.sweep.backlog import SweepBacklog
    from epochal.sweep.settings import SweepSettings
    from epochal.sweep.trials import Trial

_NUM_BEST = 5


@final
class SweepPage:
    """Shows a sweep while it works; call ``show`` with its pool, inside ``with``."""

    def __init__(self, backlog: SweepBacklog) -> None:
        self._backlog = backlog
        self._told: set[int] = {one.number for one in backlog.trials.values() if one.is_ended}
        self._mode = "running"
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, pool: Pool) -> None:
        """Show the present state."""
        settings = self._backlog.settings
        for trial in [one for one in self._backlog.trials.values() if one.is_ended]:
            if trial.number not in self._told and self._live is None:
                print(escape_control(describe_trial(trial, settings)), flush=True)
            self._told.add(trial.number)
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text("\n".join(self._lines(pool))), refresh=True)
        elif pool.mode != self._mode:
            self._mode = pool.mode
            print(HINTS[pool.mode], flush=True)

    def _lines(self, pool: Pool) -> Iterator[str]:
        settings, trials = self._backlog.settings, self._backlog.trials
        rows = []
        for entry in pool.running:
            trial = trials[entry.waiting.key // 1000]
            seconds = format_seconds(pool.clock() - entry.started)
            rows.append((str(trial.number), entry.device, seconds, format_values(trial)))
        yield format_table(("trial", "device", "time", "values"), rows)
        yield from _count_lines(self._backlog)
        yield from _best_lines(rank_trials(trials.values(), settings), settings)
        yield HINTS[pool.mode]


def print_sweep(backlog: SweepBacklog) -> None:
    """Print the best trials, and how to go on."""
    ranked = rank_trials(backlog.trials.values(), backlog.settings)
    print()
    for line in (*_count_lines(backlog), *_best_lines(ranked, backlog.settings)):
        print(escape_control(line) if "\n" not in line else line)
    if ranked and ranked[0].runs[0].path is not None:
        print(f"best run: {ranked[0].runs[0].path}")
    if not backlog.is_done():
        print(f"continue: {epochal_command()} sweep {backlog.folder.id}")


def describe_trial(trial: Trial, settings: SweepSettings) -> str:
    """A trial that has ended, in one line."""
    found = trial.get_objectives(settings)
    names = [one.metric for one in settings.objectives]
    result = ", ".join(
        f"{name} {format_value(value)}" for name, value in zip(names, found or (), strict=False)
    )
    return (
        f"{trial.state:<9} trial {trial.number}: {result or trial.error} ({format_values(trial)})"
    )


def format_values(trial: Trial) -> str:
    """The values of a trial in one line."""
    return ", ".join(f"{key}={format_value(value)}" for key, value in trial.values.items())


def _count_lines(backlog: SweepBacklog) -> Iterator[str]:
    states = [one.state for one in backlog.trials.values()]
    total = backlog.settings.num_trials
    parts = [f"{len(states)}{'' if total is None else f' of {total}'} trials"]
    for state in ("running", "finished", "pruned", "failed", "waiting"):
        if state in states:
            parts.append(f"{states.count(state)} {state}")
    yield ", ".join(parts)
    if backlog.stop_reason:
        yield f"stopped: {backlog.stop_reason}"


def _best_lines(ranked: list[Trial], settings: SweepSettings) -> Iterator[str]:
    if not ranked:
        return
    names = [one.metric for one in settings.objectives]
    is_single = len(names) == 1
    rows = []
    for trial in ranked[:_NUM_BEST]:
        found = trial.get_objectives(settings) or ()
        cells = [format_value(value) for value in found]
        deviation = trial.get_deviation(settings)
        if deviation is not None:
            cells[0] += f" ± {format_value(deviation)}"
        rows.append((str(trial.number), *cells, format_values(trial)))
    title = "best" if is_single else f"not dominated ({format_count(len(ranked), 'trial')})"
    yield format_table((title, *names, "values"), rows)
