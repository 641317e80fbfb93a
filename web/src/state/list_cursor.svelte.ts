/** The row of a list that the keys j, k and Enter work on. */

import { addKeys } from "./keyboard";

export class ListCursor {
  place = $state(-1);

  /** Follow the keys while a page is shown; the result ends that. */
  listen(count: () => number, open: (place: number) => void): () => void {
    const move = (step: number) => {
      this.place = Math.max(0, Math.min(count() - 1, this.place + step));
      document.querySelector(`[data-place="${this.place}"]`)?.scrollIntoView({ block: "nearest" });
    };
    return addKeys({ j: () => move(1), k: () => move(-1), Enter: () => open(this.place) });
  }
}
