/** What a form changes: only values that differ from the file, and fields that hold no number. */

import type { FormField } from "../api/types";

export type Draft = string | boolean;

export interface Overrides {
  overrides: Record<string, number | boolean>;
  wrong: string[];
}

export function overridesOf(fields: FormField[], drafts: Record<string, Draft>): Overrides {
  const found: Overrides = { overrides: {}, wrong: [] };
  for (const field of fields) {
    const draft = drafts[field.key];
    if (draft === undefined || draft === "") continue;
    const value = typeof draft === "boolean" ? draft : Number(draft);
    const isWrong = typeof value === "number" && (!Number.isFinite(value) || (field.is_integer && !Number.isInteger(value)));
    if (isWrong) found.wrong.push(field.key);
    else if (value !== field.value) found.overrides[field.key] = value;
  }
  return found;
}

/** A key by which the server recognises a request that was sent twice. */
export function makeKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID needs an encrypted connection
  return [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");
}
