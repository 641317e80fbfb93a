/** Curves as the server packs them: 64-bit floats in base64, NaN for gaps. */

import type { Series } from "../api/types";

type Column = "x" | "min" | "max" | "mean";

export type PackedSeries = Omit<Series, Column> & Record<Column, string>;

const MAX_POINTS = 700; // of one curve; a chart is about as wide
const MIN_POINTS = 200;
const ALL_POINTS = 20_000; // of all curves of a chart

/** How many points each curve of a chart gets; spikes are in the band between minimum and maximum. */
export function pointsOf(runs: number): number {
  return Math.round(Math.max(MIN_POINTS, Math.min(MAX_POINTS, ALL_POINTS / Math.max(1, runs))));
}

export function unpack(text: string): Float64Array {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < characters.length; i++) bytes[i] = characters.charCodeAt(i);
  return new Float64Array(bytes.buffer);
}

export function unpackSeries(packed: PackedSeries): Series {
  const valuesOf = (text: string) => Array.from(unpack(text), (value) => (Number.isNaN(value) ? null : value));
  const mean = valuesOf(packed.mean);
  const [min, max] = packed.is_exact ? [mean, mean] : [valuesOf(packed.min), valuesOf(packed.max)];
  return { ...packed, x: Array.from(unpack(packed.x)), mean, min, max };
}
