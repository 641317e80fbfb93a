import { expect, test } from "vitest";

import { firstParagraph, parseInline, parseMarkdown, safeHref } from "../src/markdown";

test("blocks of a README are found", () => {
  const text = "# Title\n\nSome *text*\nmore\n\n- a\n- b\n  - c\n\n1. one\n2. two\n\n> quote\n\n```py\nx = 1\n# no heading\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n---\n";
  const blocks = parseMarkdown(text);
  expect(blocks.map((one) => one.kind)).toEqual(["heading", "paragraph", "list", "list", "quote", "code", "table", "rule"]);
  const list = blocks[2];
  expect(list?.kind === "list" && list.items.map((item) => item.map((one) => one.kind))).toEqual([["paragraph"], ["paragraph", "list"]]);
  expect(blocks[5]).toEqual({ kind: "code", text: "x = 1\n# no heading", language: "py" });
  expect(blocks[6]?.kind === "table" && blocks[6].rows).toEqual([[[{ kind: "text", text: "1" }], [{ kind: "text", text: "2" }]]]);
});

test("inline marks nest, and identifiers keep their underscores", () => {
  expect(parseInline("a **b *c*** `d*` ~~e~~")).toEqual([
    { kind: "text", text: "a " },
    { kind: "strong", children: [{ kind: "text", text: "b " }, { kind: "em", children: [{ kind: "text", text: "c" }] }] },
    { kind: "text", text: " " },
    { kind: "code", text: "d*" },
    { kind: "text", text: " " },
    { kind: "strike", children: [{ kind: "text", text: "e" }] },
  ]);
  expect(parseInline("snake_case_name 2 * 3 * 4 \\*x\\*")).toEqual([{ kind: "text", text: "snake_case_name 2 * 3 * 4 *x*" }]);
});

test("only web and mail addresses become links", () => {
  const rows: [string, string][] = [
    ["https://a.org/b", "https://a.org/b"], ["mailto:a@b.c", "mailto:a@b.c"], ["javascript:alert(1)", ""], ["JaVaScRiPt:alert(1)", ""],
    ["java\nscript:alert(1)", ""], ["data:text/html,x", ""], ["vbscript:x", ""], ["//evil.org", ""], ["/runs", ""], ["file:///etc/passwd", ""], ["blob:x", ""],
  ];
  for (const [href, safe] of rows) expect(safeHref(href), href).toBe(safe);
  expect(parseInline("[click](javascript:alert(1))")).toEqual([{ kind: "text", text: "click" }]);
  expect(parseInline("see https://a.org/x_y, or <https://b.org>")[1]).toEqual({ kind: "link", href: "https://a.org/x_y", children: [{ kind: "text", text: "https://a.org/x_y" }] });
});

test("HTML stays text", () => {
  expect(parseMarkdown("<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>").map((one) => one.kind === "paragraph" && one.children)).toEqual([
    [{ kind: "text", text: "<script>alert(1)</script>" }],
    [{ kind: "text", text: "<img src=x onerror=alert(1)>" }],
  ]);
});

test("hostile texts are parsed in time and keep their characters", () => {
  for (const part of ["**a ", "[", "`", "> ", "- ", "~~x ", "_a ", "![](", "#", "| a ", "<http://", "1. "]) {
    expect(parseMarkdown(part.repeat(20_000)).length, part).toBeGreaterThan(0);
    expect(parseMarkdown(`${part}\n`.repeat(3_000)).length, part).toBeGreaterThan(0);
  }
}, 20_000);

test("the first paragraph comes without title, lists and tables", () => {
  expect(firstParagraph("# tag\n\nWhy?\nBecause.\n\nMore")).toBe("Why?\nBecause.");
  expect(firstParagraph("# tag\nWhy?")).toBe("Why?");
  expect(firstParagraph("# tag\n\n- a list")).toBe("");
  expect(firstParagraph("")).toBe("");
});
