"""The table of modules in docs/design.md says what the modules say; run this file to renew it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "epochal"
PAGE = ROOT / "docs" / "design.md"
MARK = "<!-- modules -->\n"


def first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    sentence = " ".join(text.partition("\n\n")[0].split())
    return sentence.replace("``", "`").replace("|", "\\|")


def table() -> str:
    rows = ["", "| Module | |", "| --- | --- |"]
    for path in sorted(PACKAGE.rglob("*.py")):
        if "template" not in path.parts:
            name = path.relative_to(PACKAGE).as_posix().removesuffix("__init__.py") or "epochal/"
            rows.append(f"| `{name}` | {first_sentence(path)} |")
    return "\n".join(rows) + "\n"


def test_table_of_modules_is_up_to_date() -> None:
    written = PAGE.read_text(encoding="utf-8").partition(MARK)[2]
    assert written == table(), "run `python tests/docs/test_design.py`"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page.partition(MARK)[0] + MARK + table(), encoding="utf-8")
