/** Which runs a comparison is of. */

const MAX_RUNS = 100;

export function idsOf(query: URLSearchParams): string[] {
  return [...new Set(query.getAll("run"))];
}

/** The request for names and metrics of the runs. */
export function headsQuery(query: URLSearchParams): { run: string[] } {
  return { run: idsOf(query).slice(0, MAX_RUNS) };
}
