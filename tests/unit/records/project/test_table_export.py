"""Tests of Markdown, LaTeX and CSV: any text is read back as it was."""

from __future__ import annotations

import csv
import io
import re

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from epochal.records.project.table_content import MetricCell, TableContent, parse_content
from epochal.records.project.table_export import export_table
from epochal.records.project.table_values import CellValue

MARKS = r"""\|`*_~[](){}<>&$#^!-+='",.:;%@/ """
LINE = st.text(st.sampled_from(MARKS) | st.sampled_from("abc019é表") | st.characters(codec="utf-8"))
TABLES = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(LINE, min_size=width, max_size=width), min_size=1, max_size=4)
)
_LATEX_WORDS = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"\textasciigrave{}": "`",
    "{}": "",
    **{f"\\{char}": char for char in "{}$&#_%"},
}
_LATEX_TOKEN = re.compile(
    "|".join(map(re.escape, _LATEX_WORDS)) + r"|\$-[0-9.]+\$|[^\\{}$&#_%~^<>|`]"
)


def make_table(lines: list[list[str]]) -> tuple[TableContent, list[list[str]]]:
    """A table of texts, and its texts."""
    clean = [[re.sub(r"[\x00-\x1f\x7f-\x9f]", "", text) for text in line] for line in lines]
    content = parse_content(clean[0], [[{"text": text} for text in line] for line in clean[1:]])
    rows = [[cell.text for cell in row] for row in content.rows]  # type: ignore[union-attr]
    return content, [list(content.columns), *rows]


def read_markdown(text: str) -> list[list[str]]:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    found: list[list[str]] = []
    for token in parser.parse(text):
        if token.type == "tr_open":
            found.append([])
        elif token.type == "inline":
            kinds = {child.type for child in token.children or []}
            assert kinds <= {"text", "text_special"}, (token.content, kinds)
            found[-1].append("".join(child.content for child in token.children or []))
    return found


def read_latex(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert not any(line.startswith(("  [", "  *")) for line in lines), text
    cells = [
        re.split(r"(?<!\\) & ", line.removeprefix("  ").removesuffix(r" \\")) for line in lines
    ]
    return [[_decode_latex(cell) for cell in line] for line in cells]


def _decode_latex(cell: str) -> str:
    tokens = _LATEX_TOKEN.findall(cell)
    assert "".join(tokens) == cell, cell
    assert not re.search(r"--|,,|''", cell), cell
    return "".join(_LATEX_WORDS.get(token, token.strip("$")) for token in tokens)


@given(TABLES)
@settings(deadline=None, max_examples=60)
def test_any_text_is_read_back_from_every_format(lines: list[list[str]]) -> None:
    content, texts = make_table(lines)
    assert read_markdown(export_table(content, {}, "markdown")) == texts
    assert read_latex(export_table(content, {}, "latex")) == texts
    rows = list(csv.reader(io.StringIO(export_table(content, {}, "csv"))))
    plain = [[cell.removeprefix("'") for cell in row] for row in rows]
    for row, known in zip(plain, texts, strict=True):
        for cell, text in zip(row, known, strict=True):
            assert cell == text.removeprefix("'") or "\\" in cell, text


def test_linked_values_are_numbers() -> None:
    cells = {
        MetricCell("r", name): value
        for name, value in {
            "a": CellValue(0.987654321),
            "b": CellValue(-0.5),
            "c": CellValue(1.25e-7),
            "d": CellValue(float("nan")),
            "e": CellValue(None, "run r is gone"),
        }.items()
    }
    rows = [[{"text": one.metric}, one.to_json()] for one in cells]
    content = parse_content(["[name]", "x_1"], rows)
    assert export_table(content, cells, "markdown") == (
        "| \\[name\\] | x\\_1 |\n"
        "| --- | ---: |\n"
        "| a | 0.9877 |\n| b | -0.5 |\n| c | 1.25e-07 |\n| d | nan |\n| e | ? |\n"
    )
    assert export_table(content, cells, "latex") == (
        "% needs \\usepackage{booktabs}\n"
        "\\begin{tabular}{lr}\n"
        "  \\toprule\n"
        "  {}[name] & x\\_1 \\\\\n"
        "  \\midrule\n"
        "  a & 0.9877 \\\\\n"
        "  b & $-0.5$ \\\\\n"
        "  c & $1.25 \\times 10^{-7}$ \\\\\n"
        "  d & nan \\\\\n"
        "  e & ? \\\\\n"
        "  \\bottomrule\n"
        "\\end{tabular}\n"
    )
    assert export_table(content, cells, "csv") == (
        "[name],x_1\na,0.987654321\nb,-0.5\nc,1.25e-07\nd,nan\ne,?\n"
    )


def test_a_table_without_columns_is_empty() -> None:
    for form in ("markdown", "latex", "csv"):
        assert export_table(TableContent(), {}, form) == "", form  # type: ignore[arg-type]


def test_formulas_do_not_reach_spreadsheets() -> None:
    content, _ = make_table([["=1+1", "@x"], ["+cmd|'x'!A1", "-0.5"]])
    assert export_table(content, {}, "csv") == "'=1+1,'@x\n'+cmd|'x'!A1,-0.5\n"
