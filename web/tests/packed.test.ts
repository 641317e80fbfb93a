import { expect, test } from "vitest";

import { pointsOf, unpackSeries } from "../src/chart/packed";

function pack(values: number[]): string {
  return btoa(String.fromCharCode(...new Uint8Array(new Float64Array(values).buffer)));
}

test("packed numbers are exact, and gaps are null", () => {
  const mean = pack([0.1, NaN, 3e300]);
  const band = { x: pack([1, 2, 5]), mean, min: pack([0, NaN, 1]), max: pack([1, NaN, 4e300]) };
  const found = unpackSeries({ name: "loss", count: 9, is_exact: false, ...band });
  expect(found).toEqual({ name: "loss", count: 9, is_exact: false, x: [1, 2, 5], mean: [0.1, null, 3e300], min: [0, null, 1], max: [1, null, 4e300] });
  expect(unpackSeries({ name: "loss", count: 3, is_exact: true, ...band, min: mean, max: mean }).max).toEqual([0.1, null, 3e300]);
});

test("many curves get fewer points each", () => {
  expect([1, 20, 50, 100, 500].map(pointsOf)).toEqual([700, 700, 400, 200, 200]);
});
