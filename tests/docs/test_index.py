"""The first page maps the terms of other frameworks to ours."""

from __future__ import annotations

from pathlib import Path

import epochal as ep

PAGE = (Path(__file__).parents[2] / "docs" / "index.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.split("Coming from elsewhere:")[1].splitlines() if "|" in line]


TERMS = {
    "Solver": "runner",
    "LightningModule": "task",
    "Accelerator": "engine",
    "DataModule": "data:",
    "Callback": "hook",
    "Pipeline": "experiment",
    "_base_": "$BASE",
    "global_step": "step",
    "symbol table": "store",
}


def test_terms_of_other_frameworks_lead_to_ours() -> None:
    for theirs, ours in TERMS.items():
        (row,) = [row for row in ROWS if theirs in row.split("|")[1]]
        assert ours in row.split("|")[2], theirs


def test_aliases_on_the_page_exist() -> None:
    assert ep.TaskFlow is ep.ModuleTask
