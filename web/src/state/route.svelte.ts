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
  current = $state.raw<Route>(parseRoute(typeof location === "undefined" ? "" : location.hash));

  /** Counts navigations by links, keys and the back button, but not `replace`. */
  visits = $state(0);

  listen(): () => void {
    const update = () => {
      this.visits++;
      this.current = parseRoute(location.hash);
    };
    addEventListener("hashchange", update);
    update();
    return () => removeEventListener("hashchange", update);
  }

  go(hash: string): void {
    location.hash = hash;
  }

  /** Change the address without a new entry in the history. */
  replace(hash: string): void {
    if (location.hash === hash) return;
    history.replaceState(null, "", hash);
    this.current = parseRoute(hash);
  }
}

export const route = new RouteState();
