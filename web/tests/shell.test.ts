import { expect, test, vi } from "vitest";

import { address } from "../src/api/client";
import { addKeys, handleKey, isTyping } from "../src/state/keyboard";
import { link, parseRoute, route } from "../src/state/route.svelte";
import { en } from "../src/text/en";
import { fill } from "../src/text/text.svelte";
import { zh } from "../src/text/zh";

test("both languages have the same texts with the same values in them", () => {
  const names = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map((one) => one[1]).sort();
  expect(Object.keys(zh).sort()).toEqual(Object.keys(en).sort());
  for (const key of Object.keys(en) as (keyof typeof en)[]) {
    expect(names(zh[key]), key).toEqual(names(en[key]));
    expect(zh[key].trim(), key).not.toBe("");
    if (key.endsWith("_one")) expect(en, key).toHaveProperty([key.slice(0, -4)]);
  }
});

test("every text is used", () => {
  const files = import.meta.glob<string>("../src/**/*.{ts,svelte}", { query: "?raw", import: "default", eager: true });
  const source = Object.entries(files).filter(([path]) => !/text\/(en|zh)\.ts$/.test(path)).map(([, text]) => text).join("\n");
  const built = ["status.", "unit.", "run.tab.", "charts.x.", "runs.columns.", "compare.status.", "compare.", "launch.fault.", "reason.", "parent.", "kind.", "part.", "saved.", "layer.", "sweep."]; // such as t(`unit.${name}`)
  for (const key of Object.keys(en)) {
    const plain = key.replace(/_one$/, "");
    const isNamed = ['"', "'"].some((quote) => source.includes(quote + plain + quote));
    expect(isNamed || built.some((start) => key.startsWith(start)), key).toBe(true);
  }
});

test("values in a text are replaced once, whatever they contain", () => {
  expect(fill("{a} and {b}", { a: "{b}", b: "$&" })).toBe("{b} and $&");
  expect(fill("{a}", {})).toBe("{a}");
});

test("addresses carry any text", () => {
  const parts = ["runs", "a/b ?#%&", "log"];
  const query = { where: "a > 1 & b = '?'", run: ["x", "y"], sort: "" };
  const found = parseRoute(link(parts, query));
  expect(found.parts).toEqual(parts);
  expect(found.query.get("where")).toBe(query.where);
  expect(found.query.getAll("run")).toEqual(["x", "y"]);
  expect(found.query.has("sort")).toBe(false);
  expect(parseRoute("#/runs/%E0%A4%A").parts).toEqual(["runs", "%E0%A4%A"]);
  expect(parseRoute("").parts).toEqual([]);
  expect(address("runs", { where: "a&b", run: ["1", "2"], limit: 0, sort: undefined })).toBe("/api/runs?where=a%26b&run=1&run=2&limit=0");
});

test("a page that keeps its state in the address does not stop one that is about to open", () => {
  const place = { hash: "" };
  vi.stubGlobal("location", place);
  vi.stubGlobal("history", { replaceState: (_state: unknown, _title: string, hash: string) => (place.hash = hash) });
  route.read();
  route.replace("#/runs?sort=a");
  expect([place.hash, route.current.query.get("sort")]).toEqual(["#/runs?sort=a", "a"]);
  route.go("#/compare");
  route.replace("#/runs?sort=b"); // before the browser tells of the change
  expect(place.hash).toBe("#/compare");
  route.read();
  expect(route.current.parts).toEqual(["compare"]);
  vi.unstubAllGlobals();
});

function key(name: string, more: Partial<KeyboardEvent> = {}): KeyboardEvent {
  return { key: name, preventDefault: () => undefined, target: null, ...more } as KeyboardEvent;
}

test("keys reach the newest layer, and letters in fields stay text", () => {
  const [below, above, leave] = [vi.fn(), vi.fn(), vi.fn()];
  const removeBelow = addKeys({ j: below, Escape: leave });
  const removeAbove = addKeys({ j: above });
  handleKey(key("j"));
  expect([below.mock.calls.length, above.mock.calls.length]).toEqual([0, 1]);
  removeAbove();
  handleKey(key("j"));
  expect(below).toHaveBeenCalledTimes(1);
  const field = { tagName: "INPUT", type: "text" } as unknown as EventTarget;
  handleKey(key("j", { target: field }));
  handleKey(key("j", { ctrlKey: true }));
  handleKey(key("q"));
  expect(below).toHaveBeenCalledTimes(1);
  handleKey(key("Escape", { target: field }));
  expect(leave).toHaveBeenCalledTimes(1);
  removeBelow();
  expect(isTyping({ tagName: "INPUT", type: "checkbox" })).toBe(false);
  expect(isTyping({ tagName: "TEXTAREA" })).toBe(true);
});
