/** Which columns a plot of many runs begins with. */

import type { RunScatter } from "../api/types";

const MAX_AXES = 7; // so that the result is visible without scrolling
const MIN_SHARE = 0.005;

/** The axes that were chosen, or the metric against a parameter that most runs have, and of these the one that mattered most. */
export function firstAxes(found: RunScatter, x: string, y: string): { x: string; y: string } {
  const result = found.metric ?? found.columns.at(-1) ?? "";
  const spread = (name: string) => new Set(found.runs.map((run) => run.values[found.columns.indexOf(name)] ?? null).filter((one) => one !== null)).size;
  const known = (name: string) => found.runs.filter((run) => (run.values[found.columns.indexOf(name)] ?? null) !== null).length;
  const rank = (name: string) => (spread(name) > 1 ? known(name) : 0) + (found.importance[name] ?? 0) / 2;
  const parameter = found.columns.filter((one) => one !== result).sort((a, b) => rank(b) - rank(a))[0] ?? "";
  return { x: found.columns.includes(x) ? x : parameter, y: found.columns.includes(y) ? y : result };
}

/** The parameters that mattered; all of them if none did. */
export function sharesOf(found: RunScatter): Record<string, number> {
  const some = Object.entries(found.importance).filter(([, share]) => share >= MIN_SHARE);
  return some.length ? Object.fromEntries(some) : found.importance;
}

/** Parameters, those that mattered first, and the result as the last axis. */
export function parallelNames(found: RunScatter, result: string): string[] {
  const share = (name: string) => found.importance[name] ?? 0;
  const parameters = found.columns.filter((one) => one !== result && one !== found.metric);
  return [...parameters.sort((a, b) => share(b) - share(a)).slice(0, MAX_AXES), result];
}
