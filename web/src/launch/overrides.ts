/** What a form changes: only values that differ from the file, and fields that hold no such value. */

import type { ComponentField, FormField, ListField, ListItem, NumberField } from "../api/form";
import type { Cell } from "../api/types";

/** What was typed: a text, a switch, or a whole list. */
export type Draft = string | boolean | ListItem[];
export type Drafts = Record<string, Draft>;

export type Fault = { kind: "number" | "integer" | "min" | "max"; bound: number };

export interface Overrides {
  overrides: Record<string, Cell | ListItem[]>;
  faults: Record<string, Fault>;
}

/** The name of the component that is chosen now. */
export function chosenName(field: ComponentField, drafts: Drafts): string {
  const draft = drafts[field.key];
  return typeof draft === "string" ? draft : (field.value ?? "");
}

/** The fields of the component that is chosen now; values that the old one also has are kept, as the server does. */
export function chosenFields(field: ComponentField, drafts: Drafts): FormField[] {
  const fieldsOf = (name: string | null) => field.choices.find((one) => one.name === name)?.fields ?? [];
  const [name, old] = [chosenName(field, drafts), fieldsOf(field.value)];
  if (name === field.value) return old;
  return fieldsOf(name).map((one) => {
    const kept = old.find(({ key, type, default: isDefault }) => key === one.key && type === one.type && !isDefault);
    return kept ? ({ ...one, value: kept.value, default: false } as FormField) : one;
  });
}

/** The key of a field inside of an item of a list. */
export function itemKey(field: FormField): string {
  return field.key.slice(field.key.lastIndexOf(".") + 1);
}

export function faultOf(field: NumberField, value: number): Fault | null {
  if (!Number.isFinite(value)) return { kind: "number", bound: 0 };
  if (field.is_integer && !Number.isInteger(value)) return { kind: "integer", bound: 0 };
  if (field.min !== null && field.min !== undefined && value < field.min) return { kind: "min", bound: field.min };
  if (field.max !== null && field.max !== undefined && value > field.max) return { kind: "max", bound: field.max };
  return null;
}

export function overridesOf(fields: FormField[], drafts: Drafts): Overrides {
  const found: Overrides = { overrides: {}, faults: {} };
  for (const field of fields) collect(field, drafts, found);
  return found;
}

function collect(field: FormField, drafts: Drafts, found: Overrides): void {
  if (field.type === "component") {
    const name = chosenName(field, drafts);
    if (name !== (field.value ?? "")) found.overrides[field.key] = name || null;
    for (const one of chosenFields(field, drafts)) collect(one, drafts, found);
    return;
  }
  const draft = drafts[field.key];
  if (draft === undefined) return;
  const value = valueOf(field, draft);
  if (value === undefined) return;
  if (field.type === "number" && typeof value === "number") {
    const fault = faultOf(field, value);
    if (fault) {
      found.faults[field.key] = fault;
      return;
    }
  }
  if (field.type === "list" && Array.isArray(value)) checkItems(field, value, found);
  if (JSON.stringify(value) !== JSON.stringify(field.value)) found.overrides[field.key] = value;
}

function checkItems(field: ListField, items: ListItem[], found: Overrides): void {
  items.forEach((item, place) => {
    for (const one of field.choices.find(({ name }) => name === item.type)?.fields ?? []) {
      const value = item[itemKey(one)];
      if (one.type !== "number" || value === undefined || value === null) continue;
      const fault = faultOf(one, typeof value === "number" ? value : NaN);
      if (fault) found.faults[`${field.key}.${place}.${itemKey(one)}`] = fault;
    }
  });
}

/** The value that was typed; an empty field is null where that is allowed, and else keeps the value of the file. */
export function valueOf(field: FormField, draft: Draft): Cell | ListItem[] | undefined {
  if (Array.isArray(draft) || typeof draft === "boolean") return draft;
  if (field.type === "choice") return [...field.choices, ...(field.is_nullable ? [null] : [])].find((one) => String(one) === draft);
  if (draft === String(field.value)) return field.value; // a text field may hold a number
  if (draft.trim() === "") return field.is_nullable ? null : undefined;
  return field.type === "number" ? Number(draft) : draft;
}

/** An item with one value changed; an empty text takes the value away, so that its default counts. */
export function changeItem(item: ListItem, field: FormField, draft: Draft): ListItem {
  const [key, value] = [itemKey(field), valueOf(field, draft)];
  const rest = Object.fromEntries(Object.entries(item).filter(([one]) => one !== key)) as ListItem;
  if (value === undefined || value === null || Array.isArray(value)) return rest;
  return { ...rest, [key]: Number.isNaN(value) ? String(draft) : value }; // keeps what is not a number yet
}

/** A key by which the server recognises a request that was sent twice. */
export function makeKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID needs an encrypted connection
  return [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");
}
