import { afterEach, expect, test, vi } from "vitest";

import { ApiFailure, get, getEarly } from "../src/api/client";
import { live } from "../src/api/live.svelte";
import { Loader } from "../src/api/loader.svelte";
import type { RunTable } from "../src/api/types";
import { CurveStore } from "../src/chart/curve_store.svelte";
import { RunList } from "../src/run_table/run_list.svelte";

afterEach(() => vi.unstubAllGlobals());

type Answer = { url: URL; answer: (body: unknown, status?: number) => void };

/** Requests that a test answers in the order it likes. */
function catchRequests(): Answer[] {
  const asked: Answer[] = [];
  vi.stubGlobal("fetch", (url: string) => {
    return new Promise((resolve) => {
      const answer = (body: unknown, status = 200) => resolve(new Response(JSON.stringify(body), { status }));
      asked.push({ url: new URL(url, "http://localhost"), answer });
    });
  });
  return asked;
}

const settle = () => new Promise((resolve) => setTimeout(resolve, 0));

function table(ids: string[], total = ids.length): RunTable {
  return { total, hidden_trials: 0, columns: [], rows: ids.map((id) => ({ id }) as RunTable["rows"][number]), problem: null };
}

test("an answer that is overtaken by a later question is dropped", async () => {
  const loader = new Loader<number>();
  const answers: ((value: number) => void)[] = [];
  const ask = () => loader.load(() => new Promise<number>((resolve) => answers.push(resolve)));
  const [first, second] = [ask(), ask()];
  answers[1]?.(2);
  answers[0]?.(1);
  await Promise.all([first, second]);
  expect(loader.value).toBe(2);
});

test("a failure keeps the old value and says what happened", async () => {
  const loader = new Loader<number>();
  await loader.load(() => Promise.resolve(1));
  await loader.load(() => Promise.reject(new ApiFailure(404, "no such run", "")));
  expect([loader.value, loader.failure?.message]).toEqual([1, "no such run"]);
});

test("the table shows only the answer to its last query, and keeps its rows while a query is wrong", async () => {
  const asked = catchRequests();
  const list = new RunList();
  const query = { where: "a", sort: "", columns: "", group: "", archived: "", trials: "" };
  list.ask(query);
  list.ask({ ...query, where: "b" });
  asked[1]?.answer(table(["b"]));
  await settle();
  asked[0]?.answer(table(["a"]));
  await settle();
  expect(list.row(0)?.id).toBe("b");
  list.ask({ ...query, where: "b >" });
  asked[2]?.answer({ ...table([]), problem: { what: "a value is missing", hint: "", column: 4 } });
  await settle();
  expect([list.problem?.what, list.total, list.row(0)?.id]).toEqual(["a value is missing", 1, "b"]);
  list.ask(query);
  asked[3]?.answer({ error: { what: "too many requests", hint: "" } }, 429);
  await settle();
  expect(list.failure?.message).toBe("too many requests");
});

test("a refresh loads the visible blocks again and no others", async () => {
  const asked = catchRequests();
  const list = new RunList();
  list.ask({ where: "", sort: "", columns: "", group: "", archived: "", trials: "" });
  asked[0]?.answer(table(Array.from({ length: 50 }, (_, i) => `r${i}`), 1000));
  await settle();
  list.show(480, 530);
  list.show(480, 530);
  expect(asked.slice(1).map((one) => one.url.searchParams.get("offset"))).toEqual(["450", "500"]);
  asked.slice(1).forEach((one) => one.answer(table(["x"], 1000)));
  await settle();
  list.refresh();
  expect(asked.slice(3).map((one) => one.url.searchParams.get("offset"))).toEqual(["450", "500"]);
});

const pack = (value: number) => btoa(String.fromCharCode(...new Uint8Array(new Float64Array([value]).buffer)));
const packed = (name: string, x: number) => ({ run: "r1", name, x: pack(x), min: pack(0), max: pack(0), mean: pack(0), is_exact: true, count: 1 });
const namesOf = (asked: Answer[]) => asked.map((one) => one.url.searchParams.getAll("name").join());

test("charts of many runs are asked for one request after the other, so that the first ones do not wait", async () => {
  const asked = catchRequests();
  const store = new CurveStore(() => Array.from({ length: 50 }, (_, i) => `r${i}`));
  for (let i = 0; i < 5; i++) store.show(`m${i}`);
  await settle();
  expect(namesOf(asked)).toEqual(["m0,m1"]);
  store.show("m0");
  asked[0]?.answer({ error: { what: "the server failed", hint: "" } }, 500);
  await settle();
  expect([...store.failed]).toEqual(["m0", "m1"]);
  asked[1]?.answer({ series: [packed("m2", 1)] });
  await settle();
  store.retry("m0");
  await settle();
  expect(namesOf(asked)).toEqual(["m0,m1", "m2,m3", "m4"]);
  asked[2]?.answer({ series: [] });
  await settle();
  expect(namesOf(asked).at(-1)).toBe("m0");
});

test("curves that appear together are asked for together, and an old zoom is dropped", async () => {
  const asked = catchRequests();
  const store = new CurveStore(() => ["r1"]);
  store.show("a");
  store.show("b");
  await settle();
  expect(namesOf(asked)).toEqual(["a,b"]);
  store.prefer("b");
  store.setView("step", [1, 2]);
  await settle();
  expect([namesOf(asked)[1], asked[1]?.url.searchParams.get("from")]).toEqual(["b,a", "1"]);
  asked[1]?.answer({ series: [packed("a", 2)] });
  await settle();
  asked[0]?.answer({ series: [packed("a", 1)] });
  await settle();
  expect(store.series.get("a")?.[0]?.x).toEqual([2]);
  expect(store.series.get("b")).toEqual([]);
});

test("curves that came with something else are not asked for, unless they are of another axis", async () => {
  const asked = catchRequests();
  const store = new CurveStore(() => ["r1"]);
  store.take("step", [packed("a", 3)]);
  store.take("time", [packed("b", 3)]);
  store.show("a");
  store.show("b");
  await settle();
  expect(store.series.get("a")?.[0]?.x).toEqual([3]);
  expect(namesOf(asked)).toEqual(["b"]);
});

test("the answer to an early request is taken once, with its failure", async () => {
  const asked = catchRequests();
  void getEarly("compare/metrics", { run: ["a", "b"] });
  const first = get<{ n: number }>("compare/metrics", { run: ["a", "b"] });
  expect(asked.length).toBe(1);
  asked[0]?.answer({ n: 1 });
  expect(await first).toEqual({ n: 1 });
  void get("compare/metrics", { run: ["a", "b"] });
  expect(asked.length).toBe(2);
  const early = getEarly("series");
  asked[2]?.answer({ error: { what: "no such run", hint: "" } }, 404);
  await expect(get("series")).rejects.toThrow("no such run");
  await expect(early).rejects.toThrow("no such run");
  const failed = getEarly("series");
  asked[3]?.answer({ error: { what: "not signed in", hint: "" } }, 401);
  await expect(failed).rejects.toThrow("not signed in");
  const again = get("series");
  asked[4]?.answer({ series: [] });
  expect(await again).toEqual({ series: [] });
});

test("points that come before the page that shows them are kept for it", () => {
  const sources: { told: Map<string, (event: { data: string }) => void>; url: string }[] = [];
  class Source {
    told = new Map<string, (event: { data: string }) => void>();
    constructor(readonly url: string) {
      sources.push(this);
    }
    addEventListener = (name: string, handler: (event: { data: string }) => void) => this.told.set(name, handler);
    close = () => undefined;
  }
  vi.stubGlobal("EventSource", Source);
  live.watch(["r1"]);
  live.watch(["r1"]);
  live.start();
  expect(sources.length).toBe(1);
  sources[0]?.told.get("points")?.({ data: JSON.stringify({ run: "r1", x: [1] }) });
  const seen: number[][] = [];
  const stop = live.on("points", (points) => seen.push(points.x));
  live.on("points", (points) => seen.push(points.x));
  expect(seen).toEqual([[1]]);
  stop();
  live.close();
});
