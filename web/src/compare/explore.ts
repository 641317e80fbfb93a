/** Which columns a plot of many runs begins with. */

import type { RunScatter } from "../api/types";

const MAX_AXES = 10;

/** The axes that were chosen, or the metric against the parameter that mattered most. */
export function firstAxes(found: RunScatter, x: string, y: string): { x: string; y: string } {
  const mattered = Object.entries(found.importance).sort((a, b) => b[1] - a[1])[0]?.[0];
  const result = found.metric ?? found.columns.at(-1) ?? "";
  const parameter = mattered ?? found.columns.find((one) => one !== result) ?? "";
  return { x: found.columns.includes(x) ? x : parameter, y: found.columns.includes(y) ? y : result };
}

/** Parameters, those that mattered first, and the result as the last axis. */
export function parallelNames(found: RunScatter, result: string): string[] {
  const share = (name: string) => found.importance[name] ?? 0;
  const parameters = found.columns.filter((one) => one !== result && one !== found.metric);
  return [...parameters.sort((a, b) => share(b) - share(a)).slice(0, MAX_AXES), result];
}
