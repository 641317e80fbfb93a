/** Asks for the files and the first data of the page in the address while the program still starts. */

import { askEarly } from "./api/client";
import { headsQuery } from "./compare/heads";
import type { Route } from "./state/route.svelte";

export function startPage({ parts: [page, id], query }: Route): void {
  let loading: Promise<unknown> | undefined;
  if (page === "compare") {
    askEarly("compare/metrics", headsQuery(query));
    loading = import("./compare/ComparePage.svelte");
  } else if (page === "runs" && id) loading = import("./run/RunPage.svelte");
  loading?.catch(() => undefined); // the page says so when it is opened
}
