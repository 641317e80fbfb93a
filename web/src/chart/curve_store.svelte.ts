/** The curves that are visible: asked for together, kept, and extended by live points. */

import { get } from "../api/client";
import { live } from "../api/live.svelte";
import type { Axis, Series } from "../api/types";
import { append } from "./curve";
import { pointsOf, unpackSeries, type PackedSeries } from "./packed";

export type Zoom = [number, number] | null;

const MAX_POINTS = 2800;
const MAX_NAMES = 24;
const MAX_RUNS = 100;
const MAX_CURVES = 400; // of one request; the server refuses more than 500
const RELOAD_MS = 2000;

export class CurveStore {
  series = $state.raw<ReadonlyMap<string, Series[]>>(new Map());
  failed = $state.raw<ReadonlySet<string>>(new Set());
  #runs: () => string[];
  #axis: Axis = "step";
  #zoom: Zoom = null;
  #visible = new Set<string>();
  #wanted = new Set<string>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #generation = 0;

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
      } else if (this.#visible.has(points.name)) this.#ask(points.name, RELOAD_MS);
    });
    return () => {
      stop();
      clearTimeout(this.#timer);
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
    this.#generation++;
    this.series = new Map([...this.series].filter(([name]) => this.#visible.has(name)));
    this.#visible.forEach((name) => this.#ask(name, 0));
  }

  show(name: string): void {
    this.#visible.add(name);
    if (!this.series.has(name)) this.#ask(name, 0);
  }

  /** Load a curve again that could not be loaded. */
  retry(name: string): void {
    this.failed = new Set([...this.failed].filter((one) => one !== name));
    this.#ask(name, 0);
  }

  hide(name: string): void {
    this.#visible.delete(name);
  }

  #ask(name: string, delay: number): void {
    this.#wanted.add(name);
    if (delay === 0) {
      clearTimeout(this.#timer);
      this.#timer = undefined;
    }
    this.#timer ??= setTimeout(() => void this.#flush(), delay);
  }

  async #flush(): Promise<void> {
    this.#timer = undefined;
    const runs = this.#runs().slice(0, MAX_RUNS);
    const names = [...this.#wanted].slice(0, Math.min(MAX_NAMES, Math.floor(MAX_CURVES / Math.max(1, runs.length))));
    names.forEach((name) => this.#wanted.delete(name));
    if (!names.length || !runs.length) return;
    const generation = this.#generation;
    const [from, to] = this.#zoom ?? [];
    const query = { run: runs, name: names, x: this.#axis, from, to, points: pointsOf(runs.length), packed: "true" };
    if (this.#wanted.size) this.#timer = setTimeout(() => void this.#flush(), 0);
    try {
      const answer = await get<{ series: PackedSeries[] }>("series", query);
      if (generation !== this.#generation) return;
      const found = answer.series.map(unpackSeries);
      const next = new Map(this.series);
      for (const name of names) next.set(name, found.filter((one) => one.name === name));
      this.series = next;
      this.failed = new Set([...this.failed].filter((name) => !names.includes(name)));
    } catch {
      if (generation === this.#generation) this.failed = new Set([...this.failed, ...names]);
    }
  }
}
