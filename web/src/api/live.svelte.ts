/** Server-sent events: one stream for the whole page, opened again when the server comes back. */

import { session } from "../state/session.svelte";
import { address } from "./client";
import type { NewPoints } from "./types";

interface Events {
  runs: { changed: string[] | null; total: number };
  points: NewPoints;
  log: { run: string; size: number };
  mail: { unread: number };
  queue: object;
}

type Handlers = { [Name in keyof Events]: Set<(data: Events[Name]) => void> };

const RETRY_MS = 3000;
const MAX_WATCHED = 100;

class LiveStream {
  isConnected = $state(false);
  #wasLost = false;
  #source: EventSource | null = null;
  #runs: string[] = [];
  #retry: ReturnType<typeof setTimeout> | undefined;
  #early: NewPoints[] = []; // that came before the page that shows them
  #handlers: Handlers = { runs: new Set(), points: new Set(), log: new Set(), mail: new Set(), queue: new Set() };

  /** Call a function for each event of a name; the result ends that. */
  on<Name extends keyof Events>(name: Name, handler: (data: Events[Name]) => void): () => void {
    this.#handlers[name].add(handler);
    if (name === "points") this.#early.splice(0).forEach((points) => this.#tellAll("points", points));
    return () => this.#handlers[name].delete(handler);
  }

  /** Also get the points of these runs, and the log of a single one. */
  watch(runs: string[]): void {
    const wanted = runs.slice(0, MAX_WATCHED);
    if (this.#source && wanted.join("\n") === this.#runs.join("\n")) return;
    this.#runs = wanted;
    this.#early = [];
    this.open();
  }

  /** Open the stream, unless a page has done so. */
  start(): void {
    if (!this.#source) this.open();
  }

  open(): void {
    this.close();
    const source = new EventSource(address("events", { run: this.#runs }));
    this.#source = source;
    source.onopen = () => {
      this.isConnected = true;
      if (this.#wasLost) void session.check(); // another server may allow less
      this.#wasLost = false;
    };
    source.onerror = () => {
      this.isConnected = false;
      this.#wasLost = true;
      if (source.readyState === EventSource.CLOSED) {
        this.#retry = setTimeout(() => void this.#reopen(), RETRY_MS);
      }
    };
    for (const name of Object.keys(this.#handlers) as (keyof Events)[]) {
      source.addEventListener(name, (event) => this.#tell(name, event.data as string));
    }
  }

  close(): void {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
    this.isConnected = false;
  }

  async #reopen(): Promise<void> {
    await session.check();
    if (session.state === "open") this.open();
  }

  #tell<Name extends keyof Events>(name: Name, text: string): void {
    const data = JSON.parse(text) as Events[Name];
    if (name === "points" && !this.#handlers.points.size) this.#early.push(data as NewPoints);
    this.#tellAll(name, data);
  }

  #tellAll<Name extends keyof Events>(name: Name, data: Events[Name]): void {
    for (const handler of this.#handlers[name]) handler(data);
  }
}

export const live = new LiveStream();
