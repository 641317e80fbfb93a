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

const FETCH: RequestInit = { credentials: "same-origin", cache: "no-store" };

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
  return ask<T>(address(path, query), signal ? { signal } : {});
}

export async function send<T>(method: "POST" | "PUT" | "DELETE", path: string, body: object): Promise<T> {
  return ask<T>(address(path), {
    method,
    body: JSON.stringify(body),
    headers: { "content-type": "application/json", "x-epochal-csrf": session.csrf },
  });
}

const early = new Map<string, Promise<Response>>();

/** Send a request before the page that needs it is there; the first `get` of the same takes its answer. */
export function askEarly(path: string, query: Query = {}): void {
  const url = address(path, query);
  const answer = fetch(url, FETCH);
  early.set(url, answer);
  answer.catch(() => undefined); // the page that takes it says why
}

function takeEarly(url: string): Promise<Response> | undefined {
  const found = early.get(url);
  early.delete(url);
  return found;
}

async function ask<T>(url: string, init: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await (takeEarly(url) ?? fetch(url, { ...FETCH, ...init }));
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
