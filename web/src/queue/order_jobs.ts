/** Jobs as people look for them: what runs, what comes next, what ended last. */

import type { Job } from "../api/types";

export function orderJobs(jobs: Job[]): Job[] {
  const rank = (job: Job) => (job.state === "running" ? 0 : job.state === "waiting" ? 1 : 2);
  const ended = (job: Job) => -(job.ended ?? 0);
  return [...jobs].sort((a, b) => rank(a) - rank(b) || (rank(a) === 2 ? ended(a) - ended(b) : 0));
}
