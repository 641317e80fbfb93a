import { expect, test } from "vitest";

import { formatBytes, formatCell, formatDuration, formatNumber, formatTick, formatUnit, prefixOf, splitName, timeAgo, toCsv, unitOf } from "../src/format";

test("numbers are short and exact enough", () => {
  const rows: [number, string][] = [
    [0, "0"], [1, "1"], [12345, "12,345"], [-3, "−3"], [0.1, "0.1"], [0.123456, "0.1235"], [98.7654, "98.77"],
    [1234.5678, "1235"], [0.0001, "0.0001"], [0.00001234, "1.234e-5"], [1e-8, "1e-8"], [12345678.9, "1.235e7"],
    [1e9, "1e9"], [NaN, "nan"], [Infinity, "inf"], [-Infinity, "−inf"], [-0.5, "−0.5"],
  ];
  for (const [value, text] of rows) expect(formatNumber(value), String(value)).toBe(text);
});

test("cells follow their type, and NaN arrives as a text", () => {
  const rows: [Parameters<typeof formatCell>, string][] = [
    [[null], ""], [[undefined], ""], [[true], "true"], [["nan"], "nan"], [[3.5], "3.5"], [[65, "duration"], "1:05 min"], [["adam"], "adam"], [["not a time", "time"], "not a time"],
  ];
  for (const [words, text] of rows) expect(formatCell(...words), JSON.stringify(words)).toBe(text);
});

test("durations name their unit", () => {
  const rows: [number, string][] = [
    [0, "0 s"], [0.256, "0.26 s"], [12.34, "12.3 s"], [59.99, "1:00 min"], [60, "1:00 min"], [3599, "59:59 min"], [3600, "1:00 h"], [90061, "1 d 1 h"], [-1, ""], [NaN, ""],
  ];
  for (const [seconds, text] of rows) expect(formatDuration(seconds), String(seconds)).toBe(text);
});

test("sizes are in decimal units", () => {
  const rows: [number, string][] = [[0, "0 B"], [999, "999 B"], [1000, "1 kB"], [1234567, "1.23 MB"], [999_999, "1 MB"], [5e13, "50 TB"]];
  for (const [bytes, text] of rows) expect(formatBytes(bytes), String(bytes)).toBe(text);
});

test("ticks have the digits that tell them apart", () => {
  const rows: [Parameters<typeof formatTick>, string][] = [
    [[0.25, 0.05], "0.25"], [[2_000_000, 500_000], "2M"], [[15_000, 5000], "15k"], [[9500, 500], "9,500"], [[0.97125, 0.00025], "0.97125"], [[65.71e9, 0.01e9, "bytes"], "65.71 GB"], [[0, 1], "0"],
  ];
  for (const [words, text] of rows) expect(formatTick(...words), JSON.stringify(words)).toBe(text);
});

test("system figures have units", () => {
  const rows: [string, string][] = [
    ["system/cpu", "99.5%"], ["system/memory", "99.5 B"], ["system/disk/free", "99.5 B"], ["system/disk/read", "99.5 B/s"], ["system/process/cores", "99.5"], ["system/gpu0/power", "99.5 W"], ["system/gpu0/temperature", "99.5 °C"], ["system/gpu0/use", "99.5%"],
  ];
  for (const [name, text] of rows) expect(formatUnit(99.5, unitOf(name)), name).toBe(text);
});

test("times are told by their largest unit", () => {
  const now = Date.parse("2026-11-16T12:00:00Z");
  expect(timeAgo("2026-11-16T11:59:55Z", now)).toBeNull();
  expect(timeAgo("2026-11-16T11:59:30Z", now)).toEqual({ n: 30, unit: "s" });
  expect(timeAgo("2026-11-16T11:30:00Z", now)).toEqual({ n: 30, unit: "min" });
  expect(timeAgo("2026-11-15T11:30:00Z", now)).toEqual({ n: 1, unit: "d" });
  expect(timeAgo("", now)).toBeNull();
});

test("the prefix of a metric ends at its first slash", () => {
  expect(["train/loss", "a/b/c", "loss", "/x", "val/probe/hidden/max"].map(prefixOf)).toEqual(["train", "a", "", "", "val/probe"]);
});

test("CSV quotes what needs it and makes formulas inert", () => {
  const text = toCsv(["run", "x"], [["a,b", 1], ['say "hi"', null], ["=1+1", true], ["-2", -2], ["@x", undefined]]);
  expect(text).toBe('run,x\r\n"a,b",1\r\n"say ""hi""",\r\n\'=1+1,true\r\n\'-2,-2\r\n\'@x,\r\n');
});

test("the last part of a long name is kept apart, since names often differ only there", () => {
  const rows: [string, [string, string]][] = [
    ["lr", ["lr", ""]], ["train/loss", ["train/loss", ""]], ["train/epoch/loss", ["train/epoch", "/loss"]], ["train/probe/gradients/first.weight/max", ["train/probe/gradients/first.weight", "/max"]],
  ];
  for (const [name, parts] of rows) expect(splitName(name), name).toEqual(parts);
});
