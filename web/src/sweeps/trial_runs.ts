/** The status of a sweep, and which of its runs are drawn, and how. */

import type { Sweep, SweepSummary, Trial } from "../api/types";

const MAX_CURVES = 100;

/** A sweep that ended before its last trial was stopped, and can be continued. */
export function sweepStatus(sweep: Pick<SweepSummary, "is_running" | "planned" | "finished" | "pruned" | "failed">): string {
  return sweep.is_running ? "running" : countEnded(sweep) < (sweep.planned ?? 0) ? "stopped" : "finished";
}

/** How many trials have ended, in whatever way. */
export function countEnded(sweep: Pick<SweepSummary, "finished" | "pruned" | "failed">): number {
  return (sweep.finished ?? 0) + (sweep.pruned ?? 0) + (sweep.failed ?? 0);
}

/** The trial of each run: the best first, then the newest, so that a large sweep shows what matters. */
export function trialRuns(sweep: Pick<Sweep, "items" | "best_trials">): Map<string, Trial> {
  const rank = new Map(sweep.best_trials.slice(0, 10).map((number, i) => [number, i]));
  const place = (one: Trial) => rank.get(one.number) ?? 1e9 - one.number;
  const sorted = [...sweep.items].sort((a, b) => place(a) - place(b));
  return new Map(sorted.flatMap((trial) => trial.runs.map((run): [string, Trial] => [run, trial])).slice(0, MAX_CURVES));
}

/** Colours with alpha, so that many lines stay readable. */
export function trialColors(isDark: boolean): Record<"best" | "pruned" | "failed" | "other", string> {
  return isDark
    ? { best: "#63c88f", pruned: "#454f60", failed: "#8a4650", other: "#5f7fbf" }
    : { best: "#1d7f4e", pruned: "#d3d8df", failed: "#e3aab0", other: "#8fabe0" };
}
