import { expect, test } from "vitest";

import { unpackSeries } from "../src/chart/packed";
import { firstAxis, pointsOf } from "../src/chart/request";

function pack(values: number[]): string {
  return btoa(String.fromCharCode(...new Uint8Array(new Float64Array(values).buffer)));
}

test("packed numbers are exact, and gaps are null", () => {
  const mean = pack([0.1, NaN, 3e300]);
  const band = { x: pack([1, 2, 5]), mean, min: pack([0, NaN, 1]), max: pack([1, NaN, 4e300]) };
  const [found] = unpackSeries([{ name: "loss", count: 9, is_exact: false, ...band }]);
  expect(found).toEqual({ name: "loss", count: 9, is_exact: false, x: [1, 2, 5], mean: [0.1, null, 3e300], min: [0, null, 1], max: [1, null, 4e300] });
  expect(unpackSeries([{ name: "loss", count: 3, is_exact: true, ...band, min: mean, max: mean }])[0]?.max).toEqual([0.1, null, 3e300]);
});

test("curves of an answer with the same x values share them", () => {
  const packed = (x: number[]) => ({ name: "loss", count: 2, is_exact: true, x: pack(x), mean: pack([1, 2]), min: "", max: "" });
  const [a, b, c] = unpackSeries([packed([0, 1]), packed([0, 1]), packed([0, 2])]);
  expect(a?.x).toBe(b?.x);
  expect(c?.x).toEqual([0, 2]);
});

test("an address names the x axis of the first request", () => {
  expect(["x=time", "x=odd", ""].map((text) => firstAxis(new URLSearchParams(text)))).toEqual(["time", "step", "step"]);
});

test("many curves get fewer points each", () => {
  expect([1, 20, 50, 100, 500].map(pointsOf)).toEqual([700, 700, 300, 200, 200]);
});
