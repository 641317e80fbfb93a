/** Metrics by prefix: validation first, then training, then the rest, then probes. */

import { isProbe, prefixOf } from "../format";

export interface MetricGroup {
  prefix: string;
  names: string[];
}

/** Metrics in the order of their charts. */
export function chartNames(names: string[], search = ""): string[] {
  return groupByPrefix(names, search).flatMap((group) => group.names);
}

const ORDER = ["val", "test", "train"];

export function groupByPrefix(names: string[], search = ""): MetricGroup[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = new Map<string, string[]>();
  for (const name of [...names].sort((a, b) => a.localeCompare(b, "en", { numeric: true }))) {
    if (!words.every((word) => name.toLowerCase().includes(word))) continue;
    const prefix = prefixOf(name);
    groups.set(prefix, [...(groups.get(prefix) ?? []), name]);
  }
  const rank = (prefix: string) => (isProbe(`${prefix}/`) ? ORDER.length + 1 : ORDER.includes(prefix) ? ORDER.indexOf(prefix) : ORDER.length);
  return [...groups].map(([prefix, found]) => ({ prefix, names: found })).sort((a, b) => rank(a.prefix) - rank(b.prefix));
}
