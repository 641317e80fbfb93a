/** Curves before they are drawn: smoothing, joining on one x axis, bands of groups. */

import type { NewPoints, Series } from "../api/types";

export type Values = (number | null)[];

export interface Curve {
  label: string;
  color: string;
  x: number[];
  mean: Values;
  min: Values;
  max: Values;
  isExact: boolean;
}

/** Exponential smoothing whose weight depends on the distance in x, so that decimation changes nothing.
 *  `strength` is from 0 (none) to 1; the early values are not pulled to zero. */
export function smooth(x: number[], y: Values, strength: number): Values {
  if (strength <= 0 || x.length < 3) return y;
  const span = (x.at(-1) ?? 0) - (x[0] ?? 0);
  if (!(span > 0)) return y;
  const width = (span * strength ** 2) / 8; // of the window, as a part of the axis
  let sum = 0;
  let weight = 0;
  let before = x[0] ?? 0;
  return y.map((value, i) => {
    const at = x[i] ?? before;
    const fade = Math.exp(-(at - before) / width);
    before = at;
    sum *= fade;
    weight *= fade;
    if (value === null) return null;
    sum += value;
    weight += 1;
    return sum / weight;
  });
}

/** The union of ascending x values. */
export function unionOf(axes: number[][]): number[] {
  const [first = []] = axes;
  if (axes.every((one) => one === first)) return first;
  const all = Float64Array.from(axes.flat()).sort();
  return [...all.filter((at, i) => i === 0 || at !== all[i - 1])];
}

/** The lowest and the highest value of several curves at each place of their union. */
export function boundsOf(axis: number[], curves: Pick<Curve, "x" | "min" | "max">[]): [(number | undefined)[], (number | undefined)[]] {
  const low = new Array<number | undefined>(axis.length).fill(undefined);
  const high = [...low];
  for (const { x, min, max } of curves) {
    let at = 0;
    for (let i = 0; i < x.length; i++) {
      while ((axis[at] ?? Infinity) < (x[i] ?? 0)) at++;
      if (axis[at] !== x[i]) continue;
      const [a, b] = [min[i] ?? Infinity, max[i] ?? -Infinity];
      if (a < (low[at] ?? Infinity)) low[at] = a;
      if (b > (high[at] ?? -Infinity)) high[at] = b;
    }
  }
  return [low, high];
}

/** Values on a larger axis; `undefined` where the curve has no point, which is drawn through. */
export function spread(axis: number[], x: number[], y: Values): (number | null | undefined)[] {
  if (axis === x) return y;
  const found: (number | null | undefined)[] = new Array<undefined>(axis.length);
  let at = 0;
  for (let i = 0; i < x.length; i++) {
    while (at < axis.length && (axis[at] ?? 0) < (x[i] ?? 0)) at++;
    found[at] = y[i] ?? null;
  }
  return found;
}

/** The value at a place between points; null outside of the curve. */
export function interpolate(x: number[], y: Values, at: number): number | null {
  const last = x.length - 1;
  if (last < 0 || at < (x[0] ?? 0) || at > (x[last] ?? 0)) return null;
  let [low, high] = [0, last];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((x[middle] ?? 0) <= at) low = middle;
    else high = middle;
  }
  const [x0, x1] = [x[low] ?? 0, x[high] ?? 0];
  const [y0, y1] = [y[low] ?? null, y[high] ?? null];
  if (at === x0 || x1 === x0) return y0;
  if (at === x1) return y1;
  return y0 === null || y1 === null ? null : y0 + ((y1 - y0) * (at - x0)) / (x1 - x0);
}

// Quantiles of Student's t for a two-sided 95% interval, by degrees of freedom.
const T95 = [0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

export function t95(freedom: number): number {
  if (freedom < 1) return 0;
  return T95[freedom] ?? 1.96 + 2.4 / freedom;
}

const MAX_GRID = 600;

/** The mean of some numbers, and half of its 95% interval; null without any. */
export function meanOf(values: number[]): { mean: number; half: number } | null {
  const n = values.length;
  if (!n) return null;
  const mean = values.reduce((a, b) => a + b, 0) / n;
  const squares = values.reduce((a, b) => a + (b - mean) ** 2, 0);
  return { mean, half: n > 1 ? t95(n - 1) * Math.sqrt(squares / (n - 1) / n) : 0 };
}

/** Mean and 95% interval of several curves, where at least one has a value. */
export function bandOf(curves: Pick<Curve, "x" | "mean">[]): Pick<Curve, "x" | "mean" | "min" | "max"> {
  const all = unionOf(curves.map((one) => one.x));
  const stride = Math.max(1, Math.ceil(all.length / MAX_GRID));
  const x = all.filter((_, i) => i % stride === 0 || i === all.length - 1);
  const mean: Values = [];
  const min: Values = [];
  const max: Values = [];
  for (const at of x) {
    const values = curves.map((one) => interpolate(one.x, one.mean, at)).filter((one) => one !== null);
    const found = meanOf(values);
    mean.push(found && found.mean);
    min.push(found && found.mean - found.half);
    max.push(found && found.mean + found.half);
  }
  return { x, mean, min, max };
}

/** A series with the points that arrived since; null if it must be loaded again. */
export function append(series: Series, points: Pick<NewPoints, "x" | "y">, most: number): Series | null {
  const last = series.x.at(-1) ?? -Infinity;
  const isLater = points.x.every((at, i) => at > (i ? (points.x[i - 1] ?? 0) : last));
  if (!isLater || series.x.length + points.x.length > most) return null;
  return {
    ...series,
    x: [...series.x, ...points.x],
    min: [...series.min, ...points.y],
    max: [...series.max, ...points.y],
    mean: [...series.mean, ...points.y],
    count: series.count + points.x.length,
  };
}

/** The place of the point nearest to an x value that has a value; -1 if there is none. */
export function nearest(x: number[], y: Values, at: number): number {
  let [left, right] = [-1, x.length]; // the last point before it, and the first one that is not
  while (right - left > 1) {
    const middle = (left + right) >> 1;
    if ((x[middle] ?? 0) < at) left = middle;
    else right = middle;
  }
  while (left >= 0 && typeof y[left] !== "number") left--;
  while (right < y.length && typeof y[right] !== "number") right++;
  if (left < 0) return right < y.length ? right : -1;
  if (right >= y.length) return left;
  return at - (x[left] ?? 0) < (x[right] ?? 0) - at ? left : right;
}

/** Whether a curve has points around an x value, or ends just beside it. */
export function isWithin(x: number[], at: number): boolean {
  const [first, last] = [x[0] ?? Infinity, x.at(-1) ?? -Infinity];
  const slack = 0.02 * (last - first);
  return at >= first - slack && at <= last + slack;
}

/** The places where a value is not finite, for marks. */
export function gapsOf(curve: Pick<Curve, "x" | "mean">): number[] {
  return curve.x.filter((_, i) => curve.mean[i] === null);
}

/** Where values are on an axis of a chart, in pixels; NaN or infinite where they are not. */
export function pixelsOf(values: Values, axis: { start: number; size: number; low: number; high: number; isLog: boolean }): Float64Array {
  const found = new Float64Array(values.length);
  const { start, isLog } = axis;
  const [low, high] = isLog ? [Math.log10(axis.low), Math.log10(axis.high)] : [axis.low, axis.high];
  const each = axis.size / (high - low);
  for (let i = 0; i < found.length; i++) {
    const value = values[i] ?? NaN;
    found[i] = start + ((isLog ? Math.log10(value) : value) - low) * each;
  }
  return found;
}

const COLUMN_PX = 2;

/** Fill the area between two curves, given in pixels, with columns; it ends where one of them is not finite.
 *  Without a graphics card this is 20 times as fast as an area with many corners. */
export function fillBand(x: Float64Array, high: Float64Array, low: Float64Array, left: number, width: number, pen: Pick<CanvasRect, "fillRect">): void {
  const count = Math.ceil(width / COLUMN_PX);
  const top = new Float64Array(count).fill(Infinity);
  const bottom = new Float64Array(count).fill(-Infinity);
  const widen = (column: number, above: number, below: number) => {
    if (above < (top[column] ?? -Infinity)) top[column] = above;
    if (below > (bottom[column] ?? Infinity)) bottom[column] = below;
  };
  let before = NaN;
  for (let i = 0; i < x.length; i++) {
    const at = ((x[i] ?? NaN) - left) / COLUMN_PX;
    const above = high[i] ?? NaN;
    const below = low[i] ?? NaN;
    if (!Number.isFinite(at + above + below)) {
      before = NaN;
      continue;
    }
    const end = Math.min(Math.floor(at), count);
    for (let column = Math.max(0, Math.floor(before) + 1); column <= end; column++) { // the curve goes on from one to the next
      const rest = (at - column) / (at - before);
      const y0 = above + ((high[i - 1] ?? 0) - above) * rest;
      const y1 = below + ((low[i - 1] ?? 0) - below) * rest;
      widen(column - 1, y0, y1);
      widen(column, y0, y1);
    }
    widen(Math.floor(at), above, below);
    before = at;
  }
  for (let column = 0; column < count; column++) {
    const y = Math.floor(top[column] ?? 0);
    if (y < Infinity) pen.fillRect(left + column * COLUMN_PX, y, COLUMN_PX, Math.max(1, Math.ceil(bottom[column] ?? 0) - y));
  }
}
