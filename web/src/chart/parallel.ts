/** Parallel coordinates: one vertical axis per parameter and result, one line per run or trial. */

import type { Cell } from "../api/types";
import { formatCell, formatNumber } from "../format";

export interface ParallelAxis {
  name: string;
  ticks: { at: number; text: string }[];
  /** The height of a value from 0 (bottom) to 1; null if it is not on the axis. */
  place: (value: Cell | undefined) => number | null;
}

export interface ParallelLine {
  key: string | number;
  name: string;
  isFaint: boolean;
  color: string | undefined;
  heights: (number | null)[];
  /** From 0 (worst) to 1 (best); null without a result. */
  quality: number | null;
}

const LOG_RATIO = 50;
const MAX_TICK = 24;

export function axisOf(name: string, values: (Cell | undefined)[]): ParallelAxis {
  const known = values.filter((one) => one !== null && one !== undefined);
  const numbers = known.filter((one) => typeof one === "number");
  if (known.length && numbers.length === known.length) return numberAxis(name, numbers);
  const texts = [...new Set(known.map((one) => formatCell(one)))].sort();
  const at = (text: string) => (texts.length < 2 ? 0.5 : texts.indexOf(text) / (texts.length - 1));
  return {
    name,
    ticks: texts.map((text) => ({ at: at(text), text: shorten(text) })),
    place: (value) => (value === null || value === undefined ? null : at(formatCell(value))),
  };
}

/** Beginning and end of a text that is too long for a tick, such as the name of a class. */
function shorten(text: string): string {
  const half = MAX_TICK / 2;
  return text.length > MAX_TICK ? `${text.slice(0, half - 1)}…${text.slice(-half)}` : text;
}

function numberAxis(name: string, numbers: number[]): ParallelAxis {
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const isLog = low > 0 && high / low >= LOG_RATIO; // as learning rates are searched
  const scale = isLog ? Math.log : (value: number) => value;
  const place = (value: Cell | undefined) => {
    if (typeof value !== "number") return null;
    return high > low ? (scale(value) - scale(low)) / (scale(high) - scale(low)) : 0.5;
  };
  const middle = isLog ? Math.sqrt(low * high) : (low + high) / 2;
  const shown = high > low ? [low, middle, high] : [low];
  return { name, place, ticks: shown.map((value) => ({ at: place(value) ?? 0, text: formatNumber(value, 3) })) };
}

export interface ParallelRow {
  key: string | number;
  name: string;
  isFaint: boolean;
  color?: string | undefined;
  values: (Cell | undefined)[];
}

/** Axes by name, and a line per row; the last axis is the result, of which `mode` is better. */
export function parallelOf(names: string[], rows: ParallelRow[], mode: "min" | "max"): { axes: ParallelAxis[]; lines: ParallelLine[] } {
  const axes = names.map((name, i) => axisOf(name, rows.map((one) => one.values[i])));
  const lines = rows.map(({ key, name, isFaint, color, values }) => {
    const heights = axes.map((axis, i) => axis.place(values[i]));
    const result = heights.at(-1) ?? null;
    const quality = result === null ? null : mode === "max" ? result : 1 - result;
    return { key, name, isFaint, color, heights, quality };
  });
  return { axes, lines: lines.sort((a, b) => (a.quality ?? -1) - (b.quality ?? -1)) };
}
