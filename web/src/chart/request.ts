/** What a request for curves asks for, also before the page that draws them is there. */

import type { Query } from "../api/client";
import type { Axis } from "../api/types";
import { settings } from "../state/settings.svelte";
import { AXES } from "./axes";

export type Zoom = [number, number] | null;

const MAX_RUNS = 100;
const MAX_POINTS = 700; // of one curve; a chart is about as wide
const MIN_POINTS = 200;
const ALL_POINTS = 15_000; // of all curves of a chart

/** How many points each curve of a chart gets; spikes are in the band between minimum and maximum. */
export function pointsOf(runs: number): number {
  return Math.round(Math.max(MIN_POINTS, Math.min(MAX_POINTS, ALL_POINTS / Math.max(1, runs))));
}

export function chartQuery(ids: string[], x: Axis): Query {
  const run = ids.slice(0, MAX_RUNS);
  return { run, x, points: pointsOf(run.length), packed: "true" };
}

/** The x axis that an address names, or the one that was used last. */
export function firstAxis(query: URLSearchParams): Axis {
  const { axis } = settings.recall<{ axis?: Axis }>("charts", {});
  return AXES.find((one) => one === query.get("x")) ?? axis ?? "step";
}
