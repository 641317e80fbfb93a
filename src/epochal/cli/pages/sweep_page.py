"""What a sweep shows: running trials and the best so far, and a summary at its end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Self, final

from epochal.cli.draw.live import LiveLines
from epochal.cli.draw.text_table import format_table
from epochal.cli.pages.pool_page import HINTS
from epochal.records.layout.run_status import ACTIVE_STATUSES
from epochal.records.query.syntax import format_moment
from epochal.sweep.trials import rank_trials
from epochal.text.command import epochal_command
from epochal.text.escape import escape_control
from epochal.text.formatting import format_count, format_seconds, format_value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from epochal.launch.pool.pool import Pool
    from epochal.sweep.backlog import SweepBacklog
    from epochal.sweep.settings import SweepSettings
    from epochal.sweep.sweep_folder import SweepFolder
    from epochal.sweep.trials import Trial, TrialState

_STATES: tuple[TrialState, ...] = ("running", "finished", "pruned", "failed", "waiting")
_NUM_BEST = 5
_NUM_SHOWN = 10
_NUM_FAILED = 3


@final
class SweepPage:
    """Shows a sweep while it works; call ``show`` with its pool, inside ``with``."""

    def __init__(self, backlog: SweepBacklog) -> None:
        self._backlog = backlog
        self._num_told = 0
        self._ranking = _Ranking(backlog)
        self._mode = "running"
        self._live = LiveLines()

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__()

    def show(self, pool: Pool) -> None:
        """Show the current state."""
        settings = self._backlog.settings
        for trial in self._backlog.ended[self._num_told :]:
            if not self._live.is_shown:
                print(escape_control(describe_trial(trial, settings)), flush=True)
        self._num_told = len(self._backlog.ended)
        if self._live.is_shown:
            self._live.draw(self._lines(pool))
        elif pool.mode != self._mode:
            self._mode = pool.mode
            print(HINTS[pool.mode], flush=True)

    def _lines(self, pool: Pool) -> Iterator[str]:
        backlog, settings = self._backlog, self._backlog.settings
        rows = []
        for entry in pool.running:
            trial = backlog.trials[entry.waiting.key // 1000]
            seconds = format_seconds(pool.clock() - entry.started)
            rows.append((str(trial.number), entry.device, seconds, format_values(trial)))
        if rows:
            yield format_table(("trial", "device", "time", "values"), rows)
        yield from _count_lines(backlog.count_states(), settings, backlog.stop_reason)
        yield from _best_lines(self._ranking.update(), settings)
        yield HINTS[pool.mode]


@final
class _Ranking:
    """The best trials of a sweep that runs; a new one is compared with these only."""

    def __init__(self, backlog: SweepBacklog) -> None:
        self._backlog = backlog
        self._settings: SweepSettings | None = None
        self._best: list[Trial] = []
        self._num_seen = 0

    def update(self) -> list[Trial]:
        """The best trials now, best first."""
        settings, ended = self._backlog.settings, self._backlog.ended
        new, self._num_seen = ended[self._num_seen :], len(ended)
        # More repeats can make a good trial worse than one that is no longer kept.
        if settings is not self._settings or any(one in self._best for one in new):
            self._settings = settings
            self._best = rank_trials(self._backlog.trials.values(), settings)
        elif new:
            self._best = rank_trials([*self._best, *new], settings)
        if len(settings.objectives) == 1:
            del self._best[_NUM_BEST:]
        return self._best


def print_sweep(backlog: SweepBacklog) -> None:
    """Print the best trials, and how to continue."""
    trials, settings = backlog.trials.values(), backlog.settings
    ranked = rank_trials(trials, settings)
    print()
    reason = backlog.stop_reason or ("as requested" if backlog.is_stopped else "")
    for line in _count_lines(backlog.count_states(), settings, reason):
        print(escape_control(line))
    for text in _best_lines(ranked, settings):
        print(text)
    if ranked and ranked[0].runs[0].path is not None:
        print(f"best run: {ranked[0].runs[0].path}")
    if backlog.is_stopped or not backlog.is_done():
        print(f"continue: {epochal_command()} sweep {backlog.folder.id}")
    elif not backlog.ended and not reason and settings.num_trials is not None:
        more = f"{backlog.folder.id} sweep.trials={2 * len(trials)}"
        print(f"no trial is left; add some: {epochal_command()} sweep {more}")


def describe_sweep(
    folder: SweepFolder, settings: SweepSettings, trials: Collection[Trial]
) -> Iterator[str]:
    """The lines about a sweep for ``epochal show``."""
    facts = folder.read_facts()
    yield f"sweep {folder.id}"
    yield f"  folder   {folder.path}"
    goals = ", ".join(map(str, settings.objectives))
    yield f"  search   {settings.method} by {goals}" + (
        "" if settings.pruner is None else f", pruned by {settings.pruner.type}"
    )
    states = Counter(map(_state_of, trials))
    yield f"  trials   {next(iter(_count_lines(states, settings)))}"
    yield f"  started  {escape_control(format_moment(str(facts.get('begun') or '')))}"
    yield f"  command  {escape_control(str(facts.get('command') or ''))}"
    for change in facts.get("changes") or []:
        yield f"  changed  {escape_control(str(change))}"
    yield ""
    ranked = rank_trials(trials, settings)
    yield from _best_lines(ranked, settings, most=_NUM_SHOWN)
    failed = [one for one in trials if one.state == "failed"]
    if len(failed) > _NUM_FAILED:
        yield f"the last {_NUM_FAILED} of {len(failed)} failures:"
    for trial in failed[-_NUM_FAILED:]:
        yield escape_control(describe_trial(trial, settings))
    yield ""
    command = epochal_command()
    if ranked and ranked[0].runs[0].path is not None:
        yield f"  best     `{command} show {ranked[0].runs[0].path.name}`"
    total = settings.num_trials
    if (total is not None and len(trials) < total) or states["waiting"]:
        yield f"  next     `{command} sweep {folder.id}` continues it"
    yield f"  all      `{command} runs --where sweep={folder.id}`"
    if (folder.path / "report.html").is_file():
        yield f"  report   {folder.path / 'report.html'}"


def summarise_sweep(folder: SweepFolder) -> str:
    """A sweep in one line, for lists."""
    facts = folder.read_summary()
    planned = facts.get("planned")
    total = f" of {planned}" if isinstance(planned, int) else ""
    parts = [f"{facts.get('trials', 0)}{total} trials"]
    parts += [f"{facts[state]} {state}" for state in ("pruned", "failed") if facts.get(state)]
    if isinstance(best := facts.get("best"), int | float):
        where = f"trial {facts.get('trial')}, {facts.get('run')}"
        parts.append(f"best {facts.get('metric')} {format_value(float(best))} ({where})")
    return escape_control(f"sweep {folder.id}: {', '.join(parts)}")


def describe_trial(trial: Trial, settings: SweepSettings) -> str:
    """A trial that has ended, in one line."""
    found = trial.get_objectives(settings)
    names = [one.metric for one in settings.objectives]
    result = ", ".join(
        f"{name} {format_value(value)}" for name, value in zip(names, found or (), strict=False)
    )
    if trial.state == "finished" and not found:
        result = f"no value of {' or '.join(names)}"
    return (
        f"{trial.state:<9} trial {trial.number}: {result or trial.error} ({format_values(trial)})"
    )


def format_values(trial: Trial) -> str:
    """The values of a trial in one line."""
    return ", ".join(f"{key}={format_value(value)}" for key, value in trial.values.items())


def _count_lines(
    states: Counter[TrialState], settings: SweepSettings, stop_reason: str = ""
) -> Iterator[str]:
    count, planned = states.total(), settings.num_planned
    total = "" if planned is None else f" of {max(planned, count)}"  # fewer may be wanted by now
    parts = [f"{count}{total} trials"]
    parts += [f"{states[one]} {one}" for one in _STATES if states[one]]
    yield ", ".join(parts)
    if stop_reason:
        yield f"stopped: {stop_reason}"


def _state_of(trial: Trial) -> TrialState:
    """Its state; outside the process of the sweep, it is read from the record."""
    is_running = any(run.status in ACTIVE_STATUSES for run in trial.runs)
    return "running" if trial.state == "waiting" and is_running else trial.state


def _best_lines(
    ranked: list[Trial], settings: SweepSettings, *, most: int = _NUM_BEST
) -> Iterator[str]:
    if not ranked:
        return
    names = [one.metric for one in settings.objectives]
    is_single = len(names) == 1
    rows = []
    for trial in ranked[:most]:
        found = trial.get_objectives(settings) or ()
        cells = [format_value(value) for value in found]
        deviation = trial.get_deviation(settings)
        if deviation is not None:
            cells[0] += f" ± {format_value(deviation)}"
        rows.append((str(trial.number), *cells, format_values(trial)))
    title = "best" if is_single else f"not dominated ({format_count(len(ranked), 'trial')})"
    yield format_table((title, *names, "values"), rows)
