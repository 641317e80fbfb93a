/** Requests to the server; every failure is an ApiFailure that can be shown. */

import { session } from "../state/session.svelte";
import { t } from "../text/text.svelte";

export class ApiFailure extends Error {
  constructor(
    readonly status: number,
    what: string,
    readonly hint: string,
  ) {
    super(what);
  }
}

/** What a user reads about something that was thrown. */
export function failureText(error: unknown): string {
  if (!(error instanceof ApiFailure)) return String(error);
  if (error.status === 0) return t("state.unreachable");
  return [error.message, error.hint].filter(Boolean).join(" · ");
}

export type Query = Record<string, string | number | readonly string[] | undefined>;

/** A path below /api with its query; parts of the path are escaped by the caller. */
export function address(path: string, query: Query = {}): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) found.append(name, String(one));
  }
  const text = found.toString();
  return `/api/${path}${text ? `?${text}` : ""}`;
}

export function runPath(id: string, part = ""): string {
  return `runs/${encodeURIComponent(id)}${part ? `/${part}` : ""}`;
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  const url = address(path, query);
  const started = early.get(url);
  early.delete(url);
  return (started as Promise<T> | undefined) ?? ask<T>(url, signal ? { signal } : {});
}

const EARLY_MS = 10_000;
const early = new Map<string, Promise<unknown>>();

/** Send a request before the page that needs its answer is there: the first `get` of the same takes it. */
export function getEarly<T>(path: string, query: Query = {}): Promise<T> {
  const url = address(path, query);
  const answer = ask<T>(url, {});
  const forget = () => void early.delete(url);
  early.set(url, answer);
  answer.catch(forget); // it is asked again
  setTimeout(forget, EARLY_MS); // it is old by then
  return answer;
}

export async function send<T>(method: "POST" | "PUT" | "DELETE", path: string, body: object): Promise<T> {
  return ask<T>(address(path), {
    method,
    body: JSON.stringify(body),
    headers: { "content-type": "application/json", "x-epochal-csrf": session.csrf },
  });
}

async function ask<T>(url: string, init: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(url, { credentials: "same-origin", cache: "no-store", ...init });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiFailure(0, "", "");
  }
  if (response.ok) return (await response.json()) as T;
  if (response.status === 401 && !url.endsWith("/session")) session.close();
  throw await failureOf(response);
}

async function failureOf(response: Response): Promise<ApiFailure> {
  try {
    const { error } = (await response.json()) as { error: { what: string; hint: string } };
    return new ApiFailure(response.status, error.what, error.hint);
  } catch {
    return new ApiFailure(response.status, `${response.status} ${response.statusText}`, "");
  }
}
