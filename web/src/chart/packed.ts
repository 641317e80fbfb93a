/** Curves as the server packs them: 64-bit floats in base64, NaN for gaps. */

import type { Series } from "../api/types";

type Column = "x" | "min" | "max" | "mean";

export type PackedSeries = Omit<Series, Column> & Record<Column, string>;

const { fromBase64 } = Uint8Array as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }; // not in every browser

function unpack(text: string): Float64Array {
  const bytes = fromBase64 ? fromBase64(text) : Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return new Float64Array(bytes.buffer);
}

function valuesOf(text: string): (number | null)[] {
  const found = unpack(text);
  const values = new Array<number | null>(found.length);
  for (let i = 0; i < found.length; i++) {
    const value = found[i] ?? NaN;
    values[i] = value === value ? value : null; // NaN
  }
  return values;
}

/** The curves of an answer; those with the same x values share them, which makes them quick to draw. */
export function unpackSeries(packed: PackedSeries[]): Series[] {
  const axes = new Map<string, number[]>();
  return packed.map((one) => {
    const x = axes.get(one.x) ?? [...unpack(one.x)];
    axes.set(one.x, x);
    const mean = valuesOf(one.mean);
    const [min, max] = one.is_exact ? [mean, mean] : [valuesOf(one.min), valuesOf(one.max)];
    return { ...one, x, mean, min, max };
  });
}
