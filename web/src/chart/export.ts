/** Charts as files: PNG, SVG and CSV, made in the browser. */

import { formatNumber, toCsv } from "../format";
import type { Curve } from "./curve";

export interface Drawing {
  title: string;
  xLabel: string;
  curves: Curve[];
  isLogY: boolean;
}

const SIZE = { width: 900, height: 480, left: 78, right: 20, top: 46, bottom: 52 };

export function toCsvFile({ curves, xLabel }: Drawing): string {
  const rows = curves.flatMap((one) =>
    one.x.map((x, i) => [one.label, x, one.mean[i] ?? null, one.min[i] ?? null, one.max[i] ?? null]),
  );
  return toCsv(["run", xLabel, "mean", "min", "max"], rows);
}

/** Round values that divide a range: 0, 0.2, 0.4, ... */
export function ticksOf(low: number, high: number, most = 6): number[] {
  const rough = (high - low) / most;
  if (!(rough > 0) || !Number.isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((one) => one * power >= rough) ?? 10) * power;
  const found: number[] = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

export function escapeXml(text: string): string {
  const names: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  // Control characters are not allowed in XML.
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "").replace(/[&<>"']/g, (one) => names[one] ?? one);
}

/** A chart as an SVG document, for papers. */
export function toSvgFile({ title, xLabel, curves, isLogY }: Drawing): string {
  const scale = isLogY ? Math.log10 : (value: number) => value;
  const isShown = (value: number | null): value is number => value !== null && (!isLogY || value > 0);
  const xs = curves.flatMap((one) => one.x);
  const ys = curves.flatMap((one) => [...one.min, ...one.max]).filter(isShown).map(scale);
  const [x0, x1] = extent(xs);
  const [y0, y1] = extent(ys);
  const px = (x: number) => SIZE.left + ((x - x0) / (x1 - x0)) * (SIZE.width - SIZE.left - SIZE.right);
  const py = (y: number) =>
    SIZE.height - SIZE.bottom - ((scale(y) - y0) / (y1 - y0)) * (SIZE.height - SIZE.top - SIZE.bottom);
  const at = (x: number, y: number) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`;
  const parts: string[] = [];
  for (const tick of ticksOf(y0, y1)) {
    const value = isLogY ? 10 ** tick : tick;
    const y = py(value).toFixed(1);
    parts.push(`<path d="M${SIZE.left} ${y}H${SIZE.width - SIZE.right}" stroke="#e3e6ea"/>`);
    parts.push(`<text x="${SIZE.left - 8}" y="${y}" dy="4" text-anchor="end">${formatNumber(value)}</text>`);
  }
  for (const tick of ticksOf(x0, x1, 8)) {
    parts.push(
      `<text x="${px(tick).toFixed(1)}" y="${SIZE.height - SIZE.bottom + 20}" text-anchor="middle">${formatNumber(tick)}</text>`,
    );
  }
  for (const one of curves) {
    const places = one.x.map((_, i) => i).filter((i) => isShown(one.mean[i] ?? null));
    const line = places.map((i) => at(one.x[i] ?? 0, one.mean[i] ?? 0)).join(" ");
    const banded = places.filter((i) => isShown(one.min[i] ?? null) && isShown(one.max[i] ?? null));
    const upper = banded.map((i) => at(one.x[i] ?? 0, one.max[i] ?? 0));
    const lower = banded.map((i) => at(one.x[i] ?? 0, one.min[i] ?? 0)).reverse();
    if (!one.isExact) parts.push(`<polygon points="${[...upper, ...lower].join(" ")}" fill="${one.color}" opacity="0.16"/>`);
    parts.push(`<polyline points="${line}" fill="none" stroke="${one.color}" stroke-width="1.8" stroke-linejoin="round"/>`);
  }
  let left = SIZE.left;
  for (const one of curves.slice(0, 8)) {
    parts.push(`<circle cx="${left + 4}" cy="34" r="4" fill="${one.color}"/>`);
    parts.push(`<text x="${left + 13}" y="38">${escapeXml(one.label)}</text>`);
    left += 30 + one.label.length * 6.6;
  }
  const size = `width="${SIZE.width}" height="${SIZE.height}" viewBox="0 0 ${SIZE.width} ${SIZE.height}"`;
  const head = `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="sans-serif" font-size="12" fill="#333">`;
  const middle = (SIZE.left + SIZE.width - SIZE.right) / 2;
  return [
    head,
    `<rect width="100%" height="100%" fill="#fff"/>`,
    `<text x="${SIZE.left}" y="20" font-size="14" font-weight="600">${escapeXml(title)}</text>`,
    ...parts,
    `<text x="${middle}" y="${SIZE.height - 12}" text-anchor="middle">${escapeXml(xLabel)}</text>`,
    "</svg>\n",
  ].join("\n");
}

function extent(values: number[]): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const one of values) {
    if (one < low) low = one;
    if (one > high) high = one;
  }
  if (!(low <= high)) return [0, 1];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

/** The canvas of a chart on the background of the page, with its title and legend above. */
export function toPngFile(canvas: HTMLCanvasElement, drawing: Drawing, ink: string, paper: string): Promise<Blob | null> {
  const ratio = devicePixelRatio || 1;
  const head = 48 * ratio;
  const copy = document.createElement("canvas");
  copy.width = canvas.width;
  copy.height = canvas.height + head;
  const pen = copy.getContext("2d");
  if (!pen) return Promise.resolve(null);
  pen.fillStyle = paper;
  pen.fillRect(0, 0, copy.width, copy.height);
  pen.drawImage(canvas, 0, head);
  pen.fillStyle = ink;
  pen.font = `600 ${13 * ratio}px sans-serif`;
  pen.fillText(drawing.title, 10 * ratio, 18 * ratio);
  pen.font = `${11 * ratio}px sans-serif`;
  let left = 10 * ratio;
  for (const one of drawing.curves) {
    pen.fillStyle = one.color;
    pen.fillRect(left, 30 * ratio, 10 * ratio, 3 * ratio);
    pen.fillStyle = ink;
    pen.fillText(one.label, left + 14 * ratio, 36 * ratio);
    left += pen.measureText(one.label).width + 30 * ratio;
  }
  return new Promise((resolve) => copy.toBlob(resolve, "image/png"));
}

/** Save a file; its name has only harmless characters. */
export function download(name: string, content: Blob | string, type = "text/plain"): void {
  const blob = typeof content === "string" ? new Blob([content], { type }) : content;
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(blob);
  anchor.download = name.replace(/[^\w.-]+/g, "-").slice(0, 120);
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10_000);
}

const DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "font-size", "font-weight", "text-anchor", "paint-order"];

/** A drawing of the page as an SVG document of its own: what its classes say is written into it. */
export function toSvgText(svg: SVGSVGElement, paper: string): string {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const [drawn, copied] = [svg, copy].map((one) => [...one.querySelectorAll("*")]) as [Element[], Element[]];
  drawn.forEach((one, i) => {
    const style = getComputedStyle(one);
    for (const name of DRAWN) copied[i]?.setAttribute(name, style.getPropertyValue(name));
    copied[i]?.removeAttribute("class");
  });
  const { width, height } = svg.viewBox.baseVal;
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  copy.setAttribute("font-family", "sans-serif");
  copy.querySelectorAll("a").forEach((one) => one.replaceWith(...one.childNodes)); // addresses of this server
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill: paper })) ground.setAttribute(name, value);
  copy.prepend(ground);
  return new XMLSerializer().serializeToString(copy);
}

/** The same as a picture, with twice as many pixels. */
export async function toPngOfSvg(text: string, width: number, height: number): Promise<Blob | null> {
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
