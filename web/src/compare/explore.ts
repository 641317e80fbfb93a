/** Which columns a plot of many runs begins with. */

import type { RunScatter } from "../api/types";

const MAX_AXES = 10;

/** The axes that the address names, or the target against the parameter that mattered most. */
export function firstAxes(found: RunScatter, x: string, y: string): { x: string; y: string } {
  const names = found.columns.map((one) => one.name);
  const target = found.target ?? found.columns.find((one) => one.kind === "metric")?.name ?? names.at(-1) ?? "";
  const mattered = Object.entries(found.importance).sort((a, b) => b[1] - a[1])[0]?.[0];
  const parameter = mattered ?? found.columns.find((one) => one.kind === "config")?.name ?? names[0] ?? "";
  return { x: names.includes(x) ? x : parameter, y: names.includes(y) ? y : target };
}

/** Parameters, those that mattered first, and the result as the last axis. */
export function parallelNames(found: RunScatter, result: string): string[] {
  const share = (name: string) => found.importance[name] ?? 0;
  const parameters = found.columns.filter((one) => one.kind === "config" && one.name !== result).map((one) => one.name);
  return [...parameters.sort((a, b) => share(b) - share(a)).slice(0, MAX_AXES), result];
}
