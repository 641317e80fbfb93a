/** How charts are drawn: axis, smoothing, logarithms, zoom; kept for the next page. */

import type { Axis } from "../api/types";
import { settings } from "../state/settings.svelte";
import type { Zoom } from "./request";

interface Stored {
  axis: Axis;
  smoothing: number;
  isLogX: boolean;
  isLogY: boolean;
}

const FIRST: Stored = { axis: "step", smoothing: 0, isLogX: false, isLogY: false };

export class ChartView {
  axis = $state<Axis>("step");
  smoothing = $state(0);
  isLogX = $state(false);
  isLogY = $state(false);
  zoom = $state.raw<Zoom>(null);

  constructor() {
    Object.assign(this, FIRST, settings.recall<Partial<Stored>>("charts", {}));
  }

  setAxis(axis: Axis): void {
    this.axis = axis;
    this.zoom = null; // it was in units of the other axis
  }

  store(): void {
    const { axis, smoothing, isLogX, isLogY } = this;
    settings.remember("charts", { axis, smoothing, isLogX, isLogY });
  }
}
