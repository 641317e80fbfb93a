/** Jobs as people look for them: what runs, what comes next, what ended last. */

import type { Job } from "../api/types";

export function orderJobs(jobs: Job[]): Job[] {
  const rank = (job: Job) => (job.state === "running" ? 0 : job.state === "waiting" ? 1 : 2);
  const ended = (job: Job) => -(job.ended ?? 0);
  return [...jobs].sort((a, b) => rank(a) - rank(b) || (rank(a) === 2 ? ended(a) - ended(b) : 0));
}

/** The job before which a waiting job is put to go one place up (-1) or down (1): null for the end, undefined if it cannot. */
export function placeAfterShift(jobs: Job[], id: string, by: number): string | null | undefined {
  const waiting = jobs.filter((job) => job.state === "waiting").map((job) => String(job.id));
  const place = waiting.indexOf(id);
  if (place < 0 || place + by < 0 || place + by >= waiting.length) return undefined;
  return (by < 0 ? waiting[place - 1] : waiting[place + 2]) ?? null;
}
