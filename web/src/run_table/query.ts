/** Names in queries, and which columns a table begins with. */

import type { Column } from "../api/types";
import { isProbe } from "../format";

const WORD = /^[A-Za-z0-9_./+@:%[\]][A-Za-z0-9_./+@:%[\]-]*$/;
const KEYWORDS = ["and", "or", "not", "in", "is", "changed"];
const MAX_CONFIG = 4;
const MAX_METRICS = 3;
const SPLITS = ["val/", "test/", "train/"];
const SECTIONS = ["model.type", "optim.lr", "model.", "optim.", "schedule.", "data.", "task.", "loss.", "train."];
const IN_LIST = /\.\d+(\.|$)/; // optim.betas.0: its list is a column, too
const ASIDE = ["seed", "tag", "hooks", "record", "launch", "notify", "log"]; // shown elsewhere, or not about the result

/** A name as the query language takes it, in quotes where needed. */
export function quoteName(name: string): string {
  const isNumber = name.trim() !== "" && !Number.isNaN(Number(name));
  if (WORD.test(name) && !isNumber && !KEYWORDS.includes(name.toLowerCase())) return name;
  return `"${name.replace(/[\\"]/g, "\\$&")}"`;
}

export interface Sort {
  name: string;
  isDescending: boolean;
}

export function parseSort(text: string): Sort | null {
  if (!text) return null;
  const isDescending = text.startsWith("-");
  return { name: isDescending ? text.slice(1) : text, isDescending };
}

export function sortText(sort: Sort | null): string {
  return sort ? `${sort.isDescending ? "-" : ""}${sort.name}` : "";
}

/** The sort key for the server. */
export function sortQuery(sort: Sort | null): string {
  return sort ? `${sort.isDescending ? "-" : ""}${quoteName(sort.name)}` : "";
}

/** A click on a header: numbers first the largest, texts first the smallest, then reversed, then none. */
export function nextSort(sort: Sort | null, name: string, isNumber: boolean): Sort | null {
  if (sort?.name !== name) return { name, isDescending: isNumber };
  if (sort.isDescending === isNumber) return { name, isDescending: !isNumber };
  return null;
}

/** Columns for a user who chose none: results, the settings that differ, and how long it took. */
export function defaultColumns(columns: Column[]): string[] {
  const has = (name: string) => columns.some((one) => one.name === name);
  const section = (one: Column) => one.name.split(".")[0] ?? "";
  const config = columns
    .filter((one) => one.kind === "config" && one.differs && !ASIDE.includes(section(one)) && !IN_LIST.test(one.name))
    .sort((a, b) => rank(a.name, SECTIONS) - rank(b.name, SECTIONS));
  const metrics = columns.filter((one) => one.kind === "metric" && !isProbe(one.name)).sort((a, b) => rank(a.name, SPLITS) - rank(b.name, SPLITS) || depth(a.name) - depth(b.name));
  return [
    ...["best"].filter(has),
    ...metrics.slice(0, MAX_METRICS).map((one) => one.name),
    ...config.slice(0, MAX_CONFIG).map((one) => one.name),
    ...["seed", "step", "seconds"].filter(has),
  ];
}

function depth(name: string): number {
  return name.split("/").length;
}

function rank(name: string, order: string[]): number {
  const place = order.findIndex((one) => name.startsWith(one));
  return place < 0 ? order.length : place;
}

/** The name that is being typed at the caret, for completion. */
export function wordAt(text: string, caret: number): { word: string; start: number } {
  const before = text.slice(0, caret);
  const found = /[A-Za-z0-9_./@:%[\]-]*$/.exec(before)?.[0] ?? "";
  return { word: found, start: caret - found.length };
}

const MAX_SUGGESTIONS = 8;

/** Columns whose name contains the word, those that begin with it first. */
export function suggestColumns(columns: Column[], word: string): Column[] {
  const wanted = word.toLowerCase();
  if (!wanted || KEYWORDS.includes(wanted) || !Number.isNaN(Number(wanted))) return [];
  const found = columns.filter((one) => one.name.toLowerCase().includes(wanted) && one.name !== word);
  const startsLater = (one: Column) => Number(!one.name.toLowerCase().startsWith(wanted));
  return found.sort((a, b) => startsLater(a) - startsLater(b)).slice(0, MAX_SUGGESTIONS);
}
