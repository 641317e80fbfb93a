/** Asks for the files and the first data of the page in the address while the program still starts. */

import { startComparison } from "./compare/start";
import type { Route } from "./state/route.svelte";

export function startPage({ parts: [page, id], query }: Route): void {
  const begun: Promise<unknown>[] = [];
  if (page === "compare") begun.push(import("./compare/ComparePage.svelte"), startComparison(query));
  if (page === "runs" && id) begun.push(import("./run/RunPage.svelte"));
  for (const one of begun) one.catch(() => undefined); // the page tells it when it asks for the same
}
