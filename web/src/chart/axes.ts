import type { Axis } from "../api/types";

export const AXES: Axis[] = ["step", "epoch", "time"];
