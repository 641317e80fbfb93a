import { expect, test } from "vitest";

import type { Series } from "../src/api/types";
import { append, bandOf, boundsOf, fillBand, gapsOf, interpolate, isWithin, nearest, pixelsOf, smooth, spread, t95, unionOf } from "../src/chart/curve";
import { escapeXml, ticksOf, toCsvFile, toSvgFile } from "../src/chart/export";
import { repairLanguage } from "../src/chart/language";
import { groupByPrefix } from "../src/chart/groups";
import { sparkPath } from "../src/run_table/spark_path";

const steps = (n: number) => Array.from({ length: n }, (_, i) => i);

test("smoothing keeps constants, gaps and the number of points, and calms noise", () => {
  const x = steps(200);
  expect(smooth(x, x.map(() => 3), 0.7).every((y) => Math.abs((y ?? 0) - 3) < 1e-9)).toBe(true);
  const noise = x.map((i) => (i % 2 ? 1 : -1));
  const calm = smooth(x, noise, 0.6);
  expect(calm).toHaveLength(200);
  expect(Math.max(...calm.slice(50).map((y) => Math.abs(y ?? 0)))).toBeLessThan(0.2);
  expect(smooth([0, 1, 2, 3], [1, null, 1, 1], 0.5)[1]).toBeNull();
  expect(smooth(x, noise, 0)).toBe(noise);
});

test("smoothing gives about the same curve for every other point", () => {
  const x = steps(1000);
  const y = x.map((i) => Math.sin(i / 100));
  const whole = smooth(x, y, 0.5);
  const half = smooth(x.filter((i) => i % 2 === 0), y.filter((_, i) => i % 2 === 0), 0.5);
  for (const i of [100, 300, 499]) expect(Math.abs((half[i] ?? 0) - (whole[2 * i] ?? 0))).toBeLessThan(0.02);
});

test("curves on one axis keep their points, and gaps stay apart from missing points", () => {
  const axis = unionOf([[1, 3, 5], [2, 3]]);
  expect(axis).toEqual([1, 2, 3, 5]);
  expect(spread(axis, [1, 3, 5], [10, null, 50])).toEqual([10, undefined, null, 50]);
  expect(gapsOf({ x: [1, 3], mean: [1, null] })).toEqual([3]);
});

test("values between points are interpolated, outside there are none", () => {
  const [x, y] = [[0, 10, 20], [0, 100, null]];
  expect([-1, 0, 5, 10, 15, 20, 21].map((at) => interpolate(x, y, at))).toEqual([null, 0, 50, 100, null, null, null]);
});

test("a curve has no value far before its first or behind its last point", () => {
  const steps = [100, 150, 200];
  expect([90, 99, 100, 170, 201, 210].map((at) => isWithin(steps, at))).toEqual([false, true, true, true, true, false]);
  expect(isWithin([], 0)).toBe(false);
  expect(isWithin([5], 5)).toBe(true);
});

test("the nearest point skips missing ones", () => {
  const y = [1, null, null, null, 5];
  expect(nearest([0, 1, 2, 3, 10], y, 1)).toBe(0);
  expect(nearest([0, 1, 8, 9, 10], y, 9)).toBe(4);
  expect(nearest([0, 4], [1, 2], 2.5)).toBe(1);
  expect(nearest([0, 4], [1, 2], 4)).toBe(1);
  expect(nearest([0, 1], [null, null], 0)).toBe(-1);
  expect(nearest([], [], 0)).toBe(-1);
});

test("the bounds of several curves are at the places of their union", () => {
  const curve = (x: number[], min: (number | null)[], max: (number | null)[]) => ({ x, min, max });
  const curves = [curve([0, 2], [1, 5], [2, 6]), curve([0, 1], [0, null], [1, null])];
  expect(boundsOf([0, 1, 2], curves)).toEqual([[0, undefined, 5], [2, undefined, 6]]);
  expect(boundsOf([2], curves)).toEqual([[5], [6]]);
});

test("a band has the mean and its 95% interval", () => {
  const curve = (y: number) => ({ x: [0, 1], mean: [y, y] });
  const band = bandOf([curve(1), curve(2), curve(3)]);
  const half = (4.303 * 1) / Math.sqrt(3);
  expect(band.mean).toEqual([2, 2]);
  expect(band.max[0]).toBeCloseTo(2 + half, 3);
  expect(band.min[1]).toBeCloseTo(2 - half, 3);
  expect(bandOf([curve(1)]).min).toEqual([1, 1]);
  expect(t95(1000)).toBeCloseTo(1.962, 2);
});

test("new points extend a series, unless steps were repeated or there are too many", () => {
  const series: Series = { name: "a", x: [1, 2], min: [1, 1], max: [2, 2], mean: [1.5, 1.5], is_exact: false, count: 9 };
  const longer = append(series, { x: [3, 4], y: [7, null] }, 100);
  expect(longer?.x).toEqual([1, 2, 3, 4]);
  expect(longer?.max).toEqual([2, 2, 7, null]);
  expect(longer?.count).toBe(11);
  expect(append(series, { x: [2], y: [7] }, 100)).toBeNull();
  expect(append(series, { x: [3, 3], y: [7, 8] }, 100)).toBeNull();
  expect(append(series, { x: [3], y: [7] }, 2)).toBeNull();
});

test("a spike is in the band of every drawing", () => {
  const curve = { label: "a", color: "#123456", x: [0, 1, 2], mean: [0, 0.1, 0], min: [0, 0, 0], max: [0, 50, 0], isExact: false };
  const svg = toSvgFile({ title: "<b>", xLabel: "step", curves: [curve], isLogY: false });
  expect(svg).toContain("&lt;b&gt;");
  expect(svg).toContain("<polygon");
  expect(svg).toContain(">50<");
  expect(toCsvFile({ title: "", xLabel: "step", curves: [curve], isLogY: false })).toContain("a,1,0.1,0,50");
  expect(escapeXml("a\u0000<'\">&")).toBe("a&lt;&#39;&quot;&gt;&amp;");
});

test("a language that no number can be formatted in is replaced", () => {
  const languages = ["en-US@posix", "zh-CN", "de"].map((language) => {
    const browser = { language };
    repairLanguage(browser);
    return browser.language;
  });
  expect(languages).toEqual(["en", "zh-CN", "de"]);
});

test("ticks are round and inside", () => {
  expect(ticksOf(0, 1)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
  expect(ticksOf(-3, 7)).toEqual([-2, 0, 2, 4, 6]);
  expect(ticksOf(2, 2)).toEqual([2]);
});

test("metrics are grouped with validation first", () => {
  const groups = groupByPrefix(["lr", "train/loss", "val/acc", "grad/a", "train/l10", "train/l9", "val/probe/h/max"]);
  expect(groups.map((one) => one.prefix)).toEqual(["val", "train", "grad", "", "val/probe"]);
  expect(groups[1]?.names).toEqual(["train/l9", "train/l10", "train/loss"]);
  expect(groupByPrefix(["train/loss", "val/acc"], "ACC").map((one) => one.names)).toEqual([["val/acc"]]);
});

test("small curves have gaps, and a single point is visible", () => {
  expect(sparkPath([], 80, 22)).toBe("");
  expect(sparkPath([null, null], 80, 22)).toBe("");
  expect(sparkPath([1], 80, 22)).toBe("M40.0 11.0h0.1");
  expect(sparkPath([0, 1, null, 0, 1], 80, 22).match(/M/g)).toHaveLength(2);
});

function boxes(x: number[], high: number[], low: number[], left = 0, width = 100): number[][] {
  const found: number[][] = [];
  fillBand(Float64Array.from(x), Float64Array.from(high), Float64Array.from(low), left, width, { fillRect: (...one: number[]) => void found.push(one) } as Pick<CanvasRect, "fillRect">);
  return found;
}

test("a band covers every point of its curve, however many there are, and no spike is hidden", () => {
  let seed = 7;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  for (const count of [1, 2, 5, 40, 300, 3000]) {
    const x = Array.from({ length: count }, () => random() * 140 - 20).sort((a, b) => a - b);
    const high = x.map(() => (random() < 0.02 ? 0 : 50 + random() * 10));
    const low = high.map((one) => one + random() * 20);
    const found = boxes(x, high, low);
    x.forEach((at, i) => {
      if (at < 0 || at >= 100) return;
      const box = found.find(([left = 0, , width = 0]) => left <= at && at < left + width);
      const [, top = 0, , height = 0] = box ?? [];
      expect(box && top <= (high[i] ?? 0) && top + height >= (low[i] ?? 0), `point ${i} of ${count}`).toBe(true);
    });
    expect(found.length).toBeLessThanOrEqual(50);
  }
});

test("a band connects its points and ends at gaps", () => {
  expect(boxes([1, 9], [10, 10], [12, 12])).toEqual([0, 2, 4, 6, 8].map((left) => [left, 10, 2, 2]));
  expect(boxes([1, 3, 5, 7, 9], [10, 10, NaN, 10, 10], [12, 12, NaN, 12, 12]).map(([left]) => left)).toEqual([0, 2, 6, 8]);
  expect(boxes([-50, 50], [0, 100], [0, 100], 0, 4)).toEqual([[0, 50, 2, 2], [2, 52, 2, 2]]);
  expect(boxes([NaN, 200], [1, 1], [1, 1])).toEqual([]);
});

test("values become pixels on linear and logarithmic axes", () => {
  const axis = { start: 200, size: -100, low: 1, high: 101, isLog: false };
  expect([...pixelsOf([1, 51, null, 101], axis)]).toEqual([200, 150, NaN, 100]);
  expect([...pixelsOf([1, 10, 0, -1], { ...axis, high: 100, isLog: true })]).toEqual([200, 150, Infinity, NaN]);
});
