/** The rows of the table, loaded in blocks around what is visible. */

import { ApiFailure, get } from "../api/client";
import type { QueryProblem, RunRow, RunTable } from "../api/types";

export interface ListQuery {
  where: string;
  sort: string;
  columns: string;
  group: string;
  archived: string;
  trials: string;
}

export const BLOCK = 50;

/** The blocks that rows from `first` to `last` are in. */
export function blocksOf(first: number, last: number, total: number): number[] {
  const end = Math.min(last, total - 1);
  const found: number[] = [];
  for (let block = Math.floor(Math.max(0, first) / BLOCK); block * BLOCK <= end; block++) found.push(block);
  return found;
}

/** The columns of some widths, side by side from `left` on, that are between two places. */
export function columnsBetween(widths: number[], left: number, start: number, end: number): number[] {
  const found: number[] = [];
  for (const [i, width] of widths.entries()) {
    if (left < end && left + width > start) found.push(i);
    left += width;
  }
  return found;
}

export class RunList {
  total = $state(0);
  hiddenTrials = $state(0);
  columns = $state.raw<RunTable["columns"]>([]);
  blocks = $state.raw<ReadonlyMap<number, RunRow[]>>(new Map());
  problem = $state.raw<QueryProblem | null>(null);
  failure = $state.raw<ApiFailure | null>(null);
  isReady = $state(false);
  isLoading = $state(false);
  #query: ListQuery | null = null;
  #wanted: number[] = [0];
  #asked = new Set<number>();
  #generation = 0;

  row(place: number): RunRow | undefined {
    return this.blocks.get(Math.floor(place / BLOCK))?.[place % BLOCK];
  }

  /** Show what another query selects; the old rows stay until the new ones are here. */
  ask(query: ListQuery): void {
    this.#query = query;
    this.#wanted = [0];
    void this.#start();
  }

  /** Load what is visible again, because runs changed. */
  refresh(): void {
    if (this.#query) void this.#start();
  }

  /** Load the rows from `first` to `last` if they are not here. */
  show(first: number, last: number): void {
    this.#wanted = blocksOf(first, last, this.total);
    const generation = this.#generation;
    for (const block of this.#wanted) {
      if (this.#asked.has(block)) continue;
      this.#asked.add(block);
      void this.#fetch(block).then(
        (table) => {
          if (generation === this.#generation) this.blocks = new Map(this.blocks).set(block, table.rows);
        },
        () => this.#asked.delete(block),
      );
    }
  }

  async #start(): Promise<void> {
    const generation = ++this.#generation;
    const wanted = this.#wanted.length ? this.#wanted : [0];
    this.isLoading = true;
    try {
      const tables = await Promise.all(wanted.map((block) => this.#fetch(block)));
      const first = tables[0];
      if (generation !== this.#generation || !first) return;
      this.failure = null;
      this.problem = first.problem;
      if (!first.problem) {
        this.total = first.total;
        this.hiddenTrials = first.hidden_trials;
        this.columns = first.columns;
        this.blocks = new Map(tables.map((table, i) => [wanted[i] ?? 0, table.rows]));
        this.#asked = new Set(wanted);
      }
      this.isReady = true;
    } catch (error) {
      if (generation !== this.#generation) return;
      this.failure = error instanceof ApiFailure ? error : new ApiFailure(-1, String(error), "");
    }
    if (generation === this.#generation) this.isLoading = false;
  }

  #fetch(block: number): Promise<RunTable> {
    return get<RunTable>("runs", { ...this.#query, offset: block * BLOCK, limit: BLOCK });
  }
}
