/** Numbers, times and sizes as people read them. */

import type { Cell } from "./api/types";

/** A number in about `digits` digits: 0.1234, 12,345, 1.2e-7. */
export function formatNumber(value: number, digits = 4): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "−inf";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return minus(value.toLocaleString("en"));
  if (size < 1e-4 || size >= 1e7) {
    const [mantissa = "", power = ""] = value.toExponential(digits - 1).split("e");
    return minus(`${trimZeros(mantissa)}e${power.replace("+", "")}`);
  }
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return minus(trimZeros(value.toFixed(Math.min(decimals, 8))));
}

function trimZeros(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function minus(text: string): string {
  return text.replace(/^-/, "−");
}

/** A value of a table or config. */
export function formatCell(value: Cell | undefined, type = ""): string {
  if (value === null || value === undefined || value === "") return "";
  if (typeof value === "boolean") return value ? "true" : "false";
  if (typeof value === "number") {
    return type === "duration" ? formatDuration(value) : formatNumber(value);
  }
  return type === "time" ? formatTime(value) : value;
}

/** Seconds as 4.2 s, 3:05 min, 2:07 h or 3 d 4 h. */
export function formatDuration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return "";
  if (seconds < 59.95) return `${trimZeros(seconds.toFixed(seconds < 9.95 ? 2 : 1))} s`;
  const whole = Math.round(seconds);
  const [days, hours] = [Math.floor(whole / 86400), Math.floor((whole % 86400) / 3600)];
  const minutes = Math.floor((whole % 3600) / 60);
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours}:${pad(minutes)} h`;
  return `${minutes}:${pad(whole % 60)} min`;
}

function pad(value: number): string {
  return String(value).padStart(2, "0");
}

/** An ISO time as 2026-11-16 09:41 of this time zone. */
export function formatTime(iso: string): string {
  const time = new Date(iso);
  if (!iso || Number.isNaN(time.getTime())) return iso;
  const day = `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())}`;
  return `${day} ${pad(time.getHours())}:${pad(time.getMinutes())}`;
}

export function formatBytes(bytes: number, digits = 3): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let size = bytes;
  let unit = 0;
  while (size >= 999.5 && unit < units.length - 1) {
    size /= 1000;
    unit++;
  }
  return `${unit ? formatNumber(size, digits) : size} ${units[unit]}`;
}

export type Unit = "" | "bytes" | "bytes/s" | "percent" | "watts" | "degrees";

/** The unit of a system figure, by its name. */
export function unitOf(name: string): Unit {
  if (/\/disk\/(read|write)$/.test(name)) return "bytes/s";
  if (/\/(memory|free)$/.test(name)) return "bytes";
  if (/\/(cpu|use)$/.test(name)) return "percent";
  if (name.endsWith("/power")) return "watts";
  return name.endsWith("/temperature") ? "degrees" : "";
}

/** A number with its unit, in about `digits` digits. */
export function formatUnit(value: number, unit: Unit = "", digits = 4): string {
  const shown = () => formatNumber(value, digits);
  if (unit === "bytes") return formatBytes(value, digits);
  if (unit === "bytes/s") return `${formatBytes(value, digits)}/s`;
  if (unit === "percent") return `${shown()}%`;
  if (unit === "watts") return `${shown()} W`;
  return unit === "degrees" ? `${shown()} °C` : shown();
}

/** The label of a tick: as many digits as tell it from its neighbours, and 2M instead of 2,000,000. */
export function formatTick(value: number, step: number, unit: Unit = ""): string {
  const size = Math.abs(value);
  const digits = Math.min(8, Math.max(3, Math.ceil(Math.log10(size / step || 1)) + 1));
  if (unit || size < 1e4 || !Number.isFinite(size)) return formatUnit(value, unit, digits);
  for (const [power, suffix] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (size >= power) return `${formatNumber(value / power, digits)}${suffix}`;
  }
  return formatNumber(value, digits);
}

export type Ago = { n: number; unit: "s" | "min" | "h" | "d" } | null;

/** How long ago an ISO time was; null if it is now, or not a time. */
export function timeAgo(iso: string, now = Date.now()): Ago {
  const seconds = (now - new Date(iso).getTime()) / 1000;
  if (!(seconds >= 10)) return null;
  if (seconds < 60) return { n: Math.floor(seconds), unit: "s" };
  if (seconds < 3600) return { n: Math.floor(seconds / 60), unit: "min" };
  if (seconds < 86400) return { n: Math.floor(seconds / 3600), unit: "h" };
  return { n: Math.floor(seconds / 86400), unit: "d" };
}

/** Whether a metric was recorded by a probe: there are many, and they are looked at last. */
export function isProbe(name: string): boolean {
  return name.includes("/probe/");
}

/** The name of a metric as what may be cut off and what may not: its last part, if there are several before it. */
export function splitName(name: string): [string, string] {
  const place = name.lastIndexOf("/");
  return place > name.indexOf("/") ? [name.slice(0, place), name.slice(place)] : [name, ""];
}

/** The prefix of a metric, such as train of train/loss, or train/probe; empty without one. */
export function prefixOf(name: string): string {
  const place = isProbe(name) ? name.indexOf("/probe/") + "/probe".length : name.indexOf("/");
  return place > 0 ? name.slice(0, place) : "";
}

/** A table as CSV; texts that a spreadsheet would calculate are made inert. */
export function toCsv(header: string[], rows: (Cell | undefined)[][]): string {
  return [header, ...rows].map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
}

function csvCell(value: Cell | undefined): string {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return String(value);
  const inert = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
}
