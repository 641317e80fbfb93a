/** Which logged files a step shows. */

import type { MediaItem } from "../api/types";

export function stepsOf(items: MediaItem[]): number[] {
  return [...new Set(items.map((one) => one.step))].sort((a, b) => a - b);
}

/** The newest file of each name up to a step, so that rare ones stay visible. */
export function latestAt(items: MediaItem[], step: number): MediaItem[] {
  const found = new Map<string, MediaItem>();
  for (const one of items) {
    const key = `${one.kind}\n${one.name}`;
    const old = found.get(key);
    if (one.step <= step && (!old || one.step >= old.step)) found.set(key, one);
  }
  return [...found.values()].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
}
