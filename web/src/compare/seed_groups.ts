/** Runs that differ only by seed, found from the comparison of their parameters. */

import type { Comparison } from "../api/types";

export interface SeedGroup {
  label: string;
  ids: string[];
}

/** Groups in the order of the runs; each run is in one. */
export function seedGroups(comparison: Pick<Comparison, "runs" | "parameters">): SeedGroup[] {
  const parameters = comparison.parameters.filter((one) => one.key !== "seed");
  const groups = new Map<string, SeedGroup>();
  comparison.runs.forEach((run, place) => {
    const values = parameters.map((one) => one.values[place] ?? null);
    const key = JSON.stringify([run.project, values]);
    const group = groups.get(key);
    if (group) group.ids.push(run.id);
    else groups.set(key, { label: run.tag || run.id, ids: [run.id] });
  });
  return [...groups.values()];
}

/** Names that tell runs apart: tags, with the end of the id where a tag is there twice. */
export function labelsOf(runs: { id: string; tag: string }[]): Map<string, string> {
  const countOf = (values: string[]) => {
    const counts = new Map<string, number>();
    for (const one of values) counts.set(one, (counts.get(one) ?? 0) + 1);
    return counts;
  };
  const short = ({ id, tag }: { id: string; tag: string }) => `${tag} ${id.slice(id.lastIndexOf("-") + 1)}`;
  const [tags, shorts] = [countOf(runs.map((one) => one.tag)), countOf(runs.map(short))];
  const labelOf = (run: { id: string; tag: string }) => {
    if (!run.tag) return run.id;
    if (tags.get(run.tag) === 1) return run.tag;
    return shorts.get(short(run)) === 1 ? short(run) : `${run.tag} ${run.id}`;
  };
  return new Map(runs.map((run) => [run.id, labelOf(run)]));
}
