/** A small Markdown parser: text to a tree that components draw as text nodes, never as HTML. */

export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "strong" | "em" | "strike"; children: Inline[] }
  | { kind: "link"; href: string; children: Inline[] }
  | { kind: "break" };

export type Block =
  | { kind: "heading"; level: number; children: Inline[] }
  | { kind: "paragraph"; children: Inline[] }
  | { kind: "code"; text: string; language: string }
  | { kind: "quote"; children: Block[] }
  | { kind: "list"; isOrdered: boolean; start: number; items: Block[][] }
  | { kind: "table"; head: Inline[][]; rows: Inline[][][] }
  | { kind: "rule" };

const MAX_DEPTH = 12;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+-]*)/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/;
const TABLE_LINE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

export function parseMarkdown(text: string): Block[] {
  return parseBlocks(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

/** The first paragraph below the title, as text; empty without one. */
export function firstParagraph(text: string): string {
  const parts = text.replace(/\r\n?/g, "\n").split(/\n\s*\n/).map((part) => part.replace(/^\s*#[^\n]*(\n|$)/, "").trim());
  const found = parts.find(Boolean) ?? "";
  if (/^_[^_]+_$/.test(found)) return ""; // the line of a new README that asks for a text
  return /^([-*+>|`~#]|\d+[.)])/.test(found) ? "" : found.slice(0, 600);
}

function parseBlocks(lines: string[], depth: number): Block[] {
  const blocks: Block[] = [];
  let i = 0;
  while (i < lines.length) {
    const line = lines[i] ?? "";
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (!line.trim()) i++;
    else if (fence?.[1]) {
      const end = findFence(lines, i + 1, fence[1]);
      blocks.push({ kind: "code", text: lines.slice(i + 1, end).join("\n"), language: fence[2] ?? "" });
      i = end + 1;
    } else if (heading?.[1]) {
      blocks.push({ kind: "heading", level: heading[1].length, children: parseInline(heading[2] ?? "") });
      i++;
    } else if (RULE.test(line)) {
      blocks.push({ kind: "rule" });
      i++;
    } else if (/^ {0,3}>/.test(line) && depth < MAX_DEPTH) {
      const end = findEnd(lines, i, (one) => /^ {0,3}>/.test(one) || (!!one.trim() && !startsBlock(one)));
      const inner = lines.slice(i, end).map((one) => one.replace(/^ {0,3}> ?/, ""));
      blocks.push({ kind: "quote", children: parseBlocks(inner, depth + 1) });
      i = end;
    } else if (ITEM.test(line) && depth < MAX_DEPTH) {
      const [list, end] = parseList(lines, i, depth);
      blocks.push(list);
      i = end;
    } else if (line.includes("|") && TABLE_LINE.test(lines[i + 1] ?? "")) {
      const end = findEnd(lines, i + 2, (one) => one.includes("|"));
      const rows = lines.slice(i + 2, end).map(splitRow);
      blocks.push({ kind: "table", head: splitRow(line), rows });
      i = end;
    } else {
      const end = findEnd(lines, i + 1, (one) => !!one.trim() && !startsBlock(one));
      const inner = lines.slice(i, end).map((one) => one.trimStart()).join("\n");
      blocks.push({ kind: "paragraph", children: parseInline(inner.trimEnd()) });
      i = end;
    }
  }
  return blocks;
}

function startsBlock(line: string): boolean {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || /^ {0,3}>/.test(line) || ITEM.test(line);
}

function findFence(lines: string[], from: number, fence: string): number {
  for (let i = from; i < lines.length; i++) {
    const line = lines[i]?.trim() ?? "";
    if (line.startsWith(fence) && line === fence.charAt(0).repeat(line.length)) return i;
  }
  return lines.length;
}

function findEnd(lines: string[], from: number, belongs: (line: string) => boolean): number {
  let end = from;
  while (end < lines.length && belongs(lines[end] ?? "")) end++;
  return Math.max(end, from);
}

function parseList(lines: string[], from: number, depth: number): [Block, number] {
  const first = ITEM.exec(lines[from] ?? "");
  const mark = first?.[2] ?? "-";
  const isOrdered = /\d/.test(mark);
  const items: Block[][] = [];
  let i = from;
  while (i < lines.length) {
    const found = ITEM.exec(lines[i] ?? "");
    if (!found || /\d/.test(found[2] ?? "") !== isOrdered || RULE.test(lines[i] ?? "")) break;
    const width = (found[1] ?? "").length + (found[2] ?? "").length + Math.min(found[3]?.length || 1, 4);
    const inner = [found[4] ?? ""];
    i++;
    while (i < lines.length) {
      const line = lines[i] ?? "";
      const indent = line.length - line.trimStart().length;
      if (!line.trim()) {
        const next = lines[i + 1] ?? "";
        if (next.length - next.trimStart().length < width) break;
        inner.push("");
      } else if (indent >= Math.min(width, 2)) inner.push(line.slice(Math.min(indent, width)));
      else if (startsBlock(line)) break;
      else inner.push(line);
      i++;
    }
    items.push(parseBlocks(inner, depth + 1));
    if (!lines[i]?.trim() && ITEM.test(lines[i + 1] ?? "")) i++;
  }
  return [{ kind: "list", isOrdered, start: isOrdered ? parseInt(mark) : 1, items }, i];
}

function splitRow(line: string): Inline[][] {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split("|").map((cell) => parseInline(cell.trim()));
}

// Every repetition has a limit, so that a hostile text costs no more than a long one.
const INLINE =
  /(?<code>(?<ticks>`+)(?<code_text>[\s\S]{0,2000}?[^`])\k<ticks>(?!`))|(?<link>!?\[(?<label>[^[\]]*)\]\((?<href>[^\s()]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s+"[^"]*")?\))|(?<auto><?(?<url>https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]])>?)|(?<strong>(?:\*\*|__)(?=\S)(?<strong_text>[\s\S]{0,2000}?\S)(?:\*\*(?!\*)|__))|(?<em>\*(?=[^\s*])(?<em_text>[^*]{0,2000}?[^\s*])\*|(?<![\w])_(?=[^\s_])(?<em_text2>[^_]{0,2000}?[^\s_])_(?!\w))|(?<strike>~~(?=\S)(?<strike_text>[\s\S]{0,2000}?\S)~~)|(?<escape>\\(?<escaped>[!-/:-@[-`{-~]))|(?<break>(?: {2,}|\\)\n)/g;

export function parseInline(text: string, depth = 0): Inline[] {
  if (depth > MAX_DEPTH) return [{ kind: "text", text }];
  const found: Inline[] = [];
  const addText = (part: string) => {
    const last = found.at(-1);
    if (!part) return;
    if (last?.kind === "text") last.text += part;
    else found.push({ kind: "text", text: part });
  };
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    const groups = match.groups ?? {};
    addText(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (groups.code) found.push({ kind: "code", text: (groups.code_text ?? "").replace(/^ (.*) $/, "$1") });
    else if (groups.link) addLink(groups.href ?? "", groups.label ?? "");
    else if (groups.auto) addLink(groups.url ?? "", groups.url ?? "");
    else if (groups.strong) found.push({ kind: "strong", children: parseInline(groups.strong_text ?? "", depth + 1) });
    else if (groups.em) {
      found.push({ kind: "em", children: parseInline(groups.em_text ?? groups.em_text2 ?? "", depth + 1) });
    } else if (groups.strike) found.push({ kind: "strike", children: parseInline(groups.strike_text ?? "", depth + 1) });
    else if (groups.escape) addText(groups.escaped ?? "");
    else found.push({ kind: "break" });
  }
  addText(text.slice(at));
  return found;

  function addLink(href: string, label: string): void {
    const safe = safeHref(href);
    const children: Inline[] = label === href ? [{ kind: "text", text: label }] : parseInline(label, depth + 1);
    if (safe) found.push({ kind: "link", href: safe, children });
    else for (const child of children) {
      if (child.kind === "text") addText(child.text);
      else found.push(child);
    }
  }
}

/** An address that may be a link: http, https or mailto; empty for all others. */
export function safeHref(href: string): string {
  try {
    const url = new URL(href);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : "";
  } catch {
    return ""; // a relative address leads nowhere from here
  }
}
