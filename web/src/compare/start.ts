/** The first request of a comparison, which is sent while its page is still loaded. */

import { getEarly, type Query } from "../api/client";
import { live } from "../api/live.svelte";
import type { Axis } from "../api/types";
import { chartQuery, firstAxis } from "../chart/request";

/** Which runs are compared. */
export function idsOf(query: URLSearchParams): string[] {
  return [...new Set(query.getAll("run"))];
}

/** The names of the runs, their metrics, and the curves of the first chart. */
export function headsQuery(ids: string[], axis: Axis): Query {
  return { ...chartQuery(ids, axis), first_curves: "true" };
}

export async function startComparison(query: URLSearchParams): Promise<void> {
  const ids = idsOf(query);
  if (ids.length < 2) return;
  live.watch(ids); // before their curves, so that no point is missed
  await getEarly("compare/metrics", headsQuery(ids, firstAxis(query)));
}
