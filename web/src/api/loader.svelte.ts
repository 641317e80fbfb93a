/** One thing that is loaded: its value, its failure, and whether it is on its way. */

import { ApiFailure } from "./client";

export class Loader<T> {
  value = $state.raw<T | null>(null);
  failure = $state.raw<ApiFailure | null>(null);
  isLoading = $state(false);
  #controller: AbortController | null = null;

  /** Load, and drop the answer of an earlier call that is still on its way. */
  async load(request: (signal: AbortSignal) => Promise<T>): Promise<void> {
    this.#controller?.abort();
    const controller = new AbortController();
    this.#controller = controller;
    this.isLoading = true;
    try {
      const value = await request(controller.signal);
      if (controller.signal.aborted) return;
      this.value = value;
      this.failure = null;
    } catch (error) {
      if (controller.signal.aborted) return;
      this.failure = error instanceof ApiFailure ? error : new ApiFailure(-1, String(error), "");
    }
    this.isLoading = false;
  }

  stop(): void {
    this.#controller?.abort();
  }
}
