"""docs/hooks.md lists everything that hooks may use of a run."""

from __future__ import annotations

import re
from pathlib import Path

from epochal import Run
from epochal.testing import tiny_run

PAGE = Path(__file__).parents[2] / "docs" / "hooks.md"


def documented() -> set[str]:
    """Names in the first column of the tables under "What a run offers"."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## What a run offers\n")[2]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {re.split(r"[.(\[]", code)[0] for row in rows for code in re.findall(r"`([^`]+)`", row)}


def test_the_page_lists_all_of_the_interface_of_a_run() -> None:
    names = {name for name in {*dir(Run), *Run.__annotations__} if not name.startswith("_")}
    assert {"not on the page": names - documented(), "gone": documented() - names} == {
        "not on the page": set(),
        "gone": set(),
    }


def test_a_run_has_all_of_its_interface() -> None:
    run = tiny_run()
    assert [name for name in Run.__annotations__ if not hasattr(run, name)] == []
