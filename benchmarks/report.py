"""The tables as text, for the terminal and RESULTS.md."""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING, Any

import rows
from figures import Estimate, Summary, summarize
from rows import CONTROL
from work import CASES, WORKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Run = dict[str, Any]
OWN = "Epochal"
HEADING = "## Overhead on a CPU"
METHOD = """
Ratios are to the hand-written loop, which trains the same segment in the same process: just before
or after it (`tiny`), or at the same time, the two taking turns at every step (`mlp`, `gpt-mini`).
Medians over pairs, 95 % intervals by resampling processes and the pairs in them. Clocks
are read inside the model's forward pass. us are microseconds per step: added in CPU time, the
others by the clock on the wall. "Same" compares loss on held-out data and norm of the weights with
the hand-written loop's. Targets are for CPU time; one is met when the whole interval is.
"""
START = f"""
Medians of fresh processes, `tiny`, minimal. Import: after `import torch`, of what the adapter
imports. First step: from the start of the process to the end of the first step, and how much
later that is than by hand in the same round. Targets of Epochal: import in
{rows.IMPORT_TARGET:.2f} s, first step {rows.FIRST_STEP_TARGET:.1f} s beyond bare torch.
"""


def full_report(results: dict[str, Any]) -> str:
    """The whole report, with date and versions."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    lines = [f"{HEADING}, {results['date']}", ""]
    lines += [f"{results['machine']}, one thread, one process at a time. {versions}.", METHOD[1:-1]]
    lines += [rows.STUBBED.strip(), ""]
    for case in CASES:
        lines += case_report(case, [run for run in results["runs"] if run["case"] == case])
    if results["starts"]:
        lines += [*_starts(results["starts"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def case_report(case: str, runs: Sequence[Run]) -> Iterator[str]:
    """The tables of one case, with notes."""
    if not runs:
        return
    yield from (f"### {case}", "", rows.ABOUT[case].strip(), "")
    for model in WORKS:
        own = [run for run in runs if run["model"] == model]
        if own:
            yield from cell_report(case, model, own)
    if rows.NOTES[case]:
        yield from (rows.NOTES[case].strip(), "")


def cell_report(case: str, model: str, runs: Sequence[Run]) -> Iterator[str]:
    """The table of one case and model, with its conclusions."""
    found = {row.name: [run for run in runs if run["row"] == row.name] for row in rows.ROWS[case]}
    good = {name: [run for run in ran if "pairs" in run] for name, ran in found.items()}
    summaries = {name: summarize(ran) for name, ran in good.items() if ran}
    table = [
        (model, "CPU", "95 %", "wall", "95 %", "added us", "us", "by hand us", "pairs", "same")
    ]
    table[0] += ("commit", "target")
    for name, summary in sorted(summaries.items(), key=lambda item: item[1].cpu.value):
        target = rows.TARGETS.get((case, model)) if name.startswith(OWN) else None
        *cells, verdict = _cells(summary, rows.TOLERANCES[case], target)
        table.append((name, *cells, _commits(good[name]), verdict))
    yield from _layout(table)
    yield ""
    yield from _mixture([run for ran in good.values() for run in ran])
    for name, ran in found.items():
        yield from _failures(name, ran)
    yield from _judge(case, summaries)
    yield ""


def _commits(runs: Sequence[Run]) -> str:
    """The short names of the measured commits."""
    commits = dict.fromkeys(run.get("commit", "") for run in runs)
    return ", ".join(one[:9] + "+" * one.endswith("+") if one else "unknown" for one in commits)


def _mixture(runs: Sequence[Run]) -> Iterator[str]:
    """A warning if a table has figures of several commits."""
    if len({run.get("commit", "") for run in runs}) > 1:
        yield "Rows are of SEVERAL COMMITS: they compare only if nothing changed in between."


def _failures(name: str, runs: Sequence[Run]) -> Iterator[str]:
    """Why a row or some of its processes are missing."""
    errors = [run["error"].strip().splitlines()[-1][:200] for run in runs if "error" in run]
    if errors and len(errors) == len(runs):
        yield f"{name}: not run: {errors[0]}"
    elif errors:
        yield f"{name}: {len(errors)} of {len(runs)} processes failed: {errors[0]}"


def _cells(summary: Summary, tolerance: float, target: float | None) -> Iterator[str]:
    for estimate in (summary.cpu, summary.wall):
        yield f"{estimate.value:.3f}"
        yield _interval(estimate)
    yield f"{summary.added_us:+.0f}"
    yield f"{summary.step_us:.0f}"
    yield f"{summary.hand_us:.0f}"
    yield str(summary.num_pairs)
    difference = max(summary.loss_difference, summary.norm_difference)
    if difference <= tolerance:
        yield "yes" if difference == 0 else f"to {difference:.0e}"
    else:
        yield f"ERROR {difference:.0e}"
    yield "" if target is None else f"{target:.2f} {summary.cpu.verdict(target)}"


def _interval(estimate: Estimate) -> str:
    return "-" if estimate.low is None else f"{estimate.low:.3f}-{estimate.high:.3f}"


def _judge(case: str, summaries: dict[str, Summary]) -> Iterator[str]:
    """Whether the control is reliable, and whether Epochal is below every peer."""
    control, own = summaries.get(CONTROL), summaries.get(OWN)
    if control is None or control.cpu.low is None:
        yield "Too little was measured for a judgement."
        return
    if not control.cpu.low <= 1 <= control.cpu.high:
        yield "The control FAILED: the hand-written loop against itself does not read 1.00."
    peers = {name: one for name, one in summaries.items() if name != CONTROL and OWN not in name}
    if own is None or not peers or case == "as-user":
        return
    near = [name for name, one in peers.items() if one.cpu.low <= own.cpu.high]
    yield f"Epochal is below every peer: {'not shown for ' + ', '.join(near) if near else 'yes'}."


def _starts(starts: Sequence[Run]) -> Iterator[str]:
    """Import, first step and memory of each peer."""
    yield from ("### Start", START, "")
    table = [("", "import s", "first step s", "beyond torch s", "peak RSS MB", "processes")]
    table[0] += ("commit",)
    good = [run for run in starts if "error" not in run]
    bare = {run["round"]: run["first_step"] for run in good if run["row"] == CONTROL}
    for row in rows.PEERS:
        ran = [run for run in good if run["row"] == row.name and run["round"] in bare]
        if ran:
            beyond = statistics.median(run["first_step"] - bare[run["round"]] for run in ran)
            median = {
                name: statistics.median(run[name] for run in ran)
                for name in ("import", "first_step", "peak_bytes")
            }
            figures = f"{median['import']:.3f}", f"{median['first_step']:.2f}", f"{beyond:+.2f}"
            peak = f"{median['peak_bytes'] / 1e6:.0f}"
            table.append((row.name, *figures, peak, str(len(ran)), _commits(ran)))
    yield from _layout(table)
    yield ""
    yield from _mixture(good)
    for row in rows.PEERS:
        yield from _failures(row.name, [run for run in starts if run["row"] == row.name])


def _layout(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table in plain text; only the first column is left-aligned."""
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    yield "```"
    for first, *others in table:
        cells = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells]).rstrip()
    yield "```"


def keep(report: str, path: Path) -> None:
    """Write the report to a file, replacing an older one."""
    text = path.read_text(encoding="utf-8")
    older = re.compile(rf"^{re.escape(HEADING)}.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    if older.search(text):
        text = older.sub(lambda _: report + "\n", text, count=1)
    else:
        text = text.rstrip() + "\n\n" + report
    path.write_text(text.rstrip() + "\n", encoding="utf-8")
