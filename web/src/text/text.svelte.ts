/** The texts of the page in the chosen language. */

import { settings } from "../state/settings.svelte";
import { en, type TextKey } from "./en";
import { zh } from "./zh";

const TABLES = { en, zh };

/** A text, with the values put into its {names}. */
export function t(key: TextKey, values: Record<string, string | number> = {}): string {
  return fill(TABLES[settings.language][key], values);
}

/** The text for a number: `key` and `key_one` differ in languages that have a plural. */
export function count<Key extends TextKey>(
  key: `${Key}_one` extends TextKey ? Key : never,
  n: number,
): string {
  const shown = n.toLocaleString(settings.language === "zh" ? "zh-CN" : "en");
  return t(n === 1 ? (`${key}_one` as TextKey) : key, { n: shown });
}

export function fill(text: string, values: Record<string, string | number>): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

/** The words for a value of a record, such as a status; one that is not known is shown as it is. */
export function valueText(kind: "status" | "reason" | "parent" | "kind" | "part" | "saved" | "layer", value: string): string {
  const key = `${kind}.${value}`;
  return key in en ? t(key as TextKey) : value;
}
