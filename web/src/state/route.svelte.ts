/** The page that the address names, such as #/runs/ID/log?rank=1. */

export interface Route {
  parts: string[];
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = "", ...rest] = hash.replace(/^#/, "").split("?");
  return {
    parts: path.split("/").filter(Boolean).map(decode),
    query: new URLSearchParams(rest.join("?")),
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export type LinkQuery = Record<string, string | readonly string[] | undefined>;

export function link(parts: string[], query: LinkQuery = {}): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === "") continue;
    for (const one of typeof value === "string" ? [value] : value) found.append(name, one);
  }
  const text = found.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

class RouteState {
  #hash = typeof location === "undefined" ? "" : location.hash;
  current = $state.raw<Route>(parseRoute(this.#hash));

  /** Counts navigations by links, keys and the back button, but not `replace`. */
  visits = $state(0);

  listen(): () => void {
    const update = () => {
      this.visits++;
      this.read();
    };
    addEventListener("hashchange", update);
    update();
    return () => removeEventListener("hashchange", update);
  }

  /** Take the page from the address. */
  read(): void {
    this.#hash = location.hash;
    this.current = parseRoute(this.#hash);
  }

  go(hash: string): void {
    location.hash = hash;
  }

  /** Change the address without a new entry in the history. */
  replace(hash: string): void {
    if (location.hash === hash || location.hash !== this.#hash) return; // the latter: another page is about to open
    history.replaceState(null, "", hash);
    this.read();
  }
}

export const route = new RouteState();
