/** The session of this browser: opened by the code in the printed link. */

import type { Capability, Session } from "../api/types";
import { route } from "./route.svelte";

type State = "asking" | "open" | "closed" | "unreachable";

class SessionState {
  state = $state<State>("asking");
  isCodeRefused = $state(false);
  isSignedOut = $state(false);
  facts = $state.raw<Session | null>(null);

  get csrf(): string {
    return this.facts?.csrf ?? "";
  }

  may(capability: Capability): boolean {
    return this.facts?.capabilities.includes(capability) ?? false;
  }

  /** Exchange the code of /open#CODE or /open/PAGE#CODE, which is removed from the address; or ask who we are. */
  async start(): Promise<void> {
    if (/^\/open(\/|$)/.test(location.pathname)) {
      const code = location.hash.slice(1);
      const place = location.pathname.slice("/open".length); // such as /runs/ID
      history.replaceState(null, "", place.length > 1 ? `/#${place}` : "/");
      route.read(); // the code is not the name of a page
      if (code) return this.#open(code);
    }
    return this.check();
  }

  async check(): Promise<void> {
    await this.#ask({});
  }

  close(): void {
    if (this.state === "open") this.state = "closed";
  }

  /** End the session of this browser; without an answer it stays as it is. */
  async signOut(): Promise<void> {
    const headers = { "content-type": "application/json", "x-epochal-csrf": this.csrf };
    const answer = await fetch("/api/session", { method: "DELETE", headers, body: "{}" }).catch(() => null);
    this.isSignedOut = answer?.ok ?? false;
    await this.check();
  }

  async #open(code: string): Promise<void> {
    const headers = { "content-type": "application/json" };
    await this.#ask({ method: "POST", headers, body: JSON.stringify({ code }) });
    if (this.state === "closed") {
      await this.check(); // a link that was opened twice: the cookie may be there
      this.isCodeRefused = this.state === "closed";
    }
  }

  async #ask(init: RequestInit): Promise<void> {
    try {
      const response = await fetch("/api/session", { cache: "no-store", ...init });
      if (response.ok) {
        this.facts = (await response.json()) as Session;
        this.state = "open";
      } else if (response.status === 401 || this.state !== "open") this.state = "closed";
    } catch {
      if (this.state !== "open") this.state = "unreachable"; // an open page stays, with what was typed
    }
  }
}

export const session = new SessionState();
