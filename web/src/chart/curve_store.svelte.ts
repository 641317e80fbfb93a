/** The curves that are visible: asked for together, kept, and extended by live points. */

import { get } from "../api/client";
import { live } from "../api/live.svelte";
import type { Axis, Series } from "../api/types";
import { append } from "./curve";
import { unpackSeries, type PackedSeries } from "./packed";
import { chartQuery, type Zoom } from "./request";

const MAX_POINTS = 2800;
const MAX_NAMES = 24;
const MAX_CURVES = 100; // of one request, so that the first charts do not wait for the others
const RELOAD_MS = 2000;

export class CurveStore {
  series = $state.raw<ReadonlyMap<string, Series[]>>(new Map());
  failed = $state.raw<ReadonlySet<string>>(new Set());
  #runs: () => string[];
  #axis: Axis = "step";
  #zoom: Zoom = null;
  #visible = new Set<string>();
  #wanted = new Set<string>();
  #asked: readonly string[] = [];
  #later = new Set<string>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #request: AbortController | null = null;

  constructor(runs: () => string[]) {
    this.#runs = runs;
  }

  /** Follow live points; the result ends that. */
  listen(): () => void {
    const stop = live.on("points", (points) => {
      const found = this.series.get(points.name);
      const place = found?.findIndex((one) => one.run === points.run) ?? -1;
      const old = found?.[place];
      const isFollowed = this.#axis === "step" && this.#zoom === null && old;
      const longer = isFollowed ? append(old, points, MAX_POINTS) : null;
      if (found && longer) {
        this.series = new Map(this.series).set(points.name, found.with(place, longer));
      } else if (this.#visible.has(points.name)) this.#askLater(points.name);
    });
    return () => {
      stop();
      this.#drop();
    };
  }

  /** Load everything again for another axis or zoom; old curves stay until then. */
  setView(axis: Axis, zoom: Zoom): void {
    if (axis === this.#axis && String(zoom) === String(this.#zoom)) return;
    this.#axis = axis;
    this.#zoom = zoom;
    this.reload();
  }

  /** Load the visible curves again, and forget the others. */
  reload(): void {
    this.#drop();
    this.#visible.forEach((name) => this.#ask(name)); // first: a change of the state draws charts before the next microtask
    this.series = new Map([...this.series].filter(([name]) => this.#visible.has(name)));
  }

  /** Take curves that came with something else, for this axis. */
  take(axis: Axis, packed: PackedSeries[]): void {
    if (axis === this.#axis && this.#zoom === null) this.#set([...new Set(packed.map((one) => one.name))], packed);
  }

  show(name: string): void {
    this.#visible.add(name);
    if (!this.series.has(name) && !this.#asked.includes(name)) this.#ask(name);
  }

  /** Load a curve again that could not be loaded. */
  retry(name: string): void {
    this.failed = new Set([...this.failed].filter((one) => one !== name));
    this.#ask(name);
  }

  /** Load this one first from now on. */
  prefer(name: string): void {
    this.#visible = new Set([name, ...this.#visible]);
  }

  hide(name: string): void {
    this.#visible.delete(name);
  }

  #ask(name: string): void {
    this.#wanted.add(name);
    queueMicrotask(() => void this.#flush()); // together with others, and before anything is drawn
  }

  #askLater(name: string): void {
    this.#later.add(name);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#later.forEach((one) => this.#ask(one));
      this.#later.clear();
    }, RELOAD_MS);
  }

  /** Forget the request on its way, and what would be asked for later. */
  #drop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#later.clear();
    this.#request?.abort();
    this.#request = null;
    this.#asked = [];
  }

  #set(names: string[], packed: PackedSeries[]): void {
    const found = unpackSeries(packed);
    const next = new Map(this.series);
    for (const name of names) next.set(name, found.filter((one) => one.name === name));
    this.series = next;
  }

  /** Ask for what is wanted, one request after the other. */
  async #flush(): Promise<void> {
    if (this.#request) return;
    const runs = this.#runs();
    const most = Math.max(1, Math.min(MAX_NAMES, Math.floor(MAX_CURVES / runs.length)));
    const names = [...this.#wanted].slice(0, most);
    if (!names.length || !runs.length) return;
    names.forEach((name) => this.#wanted.delete(name));
    this.#asked = names;
    const request = (this.#request = new AbortController());
    try {
      const [from, to] = this.#zoom ?? [];
      const query = { ...chartQuery(runs, this.#axis), name: names, from, to };
      const answer = await get<{ series: PackedSeries[] }>("series", query, request.signal);
      if (request !== this.#request) return;
      this.#set(names, answer.series);
      this.failed = new Set([...this.failed].filter((name) => !names.includes(name)));
    } catch {
      if (request !== this.#request) return;
      this.failed = new Set([...this.failed, ...names]);
    }
    this.#request = null;
    this.#asked = [];
    void this.#flush();
  }
}
