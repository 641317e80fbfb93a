"""docs/hooks.md lists everything that hooks may use of a run."""

from __future__ import annotations

import re
from pathlib import Path

from epochal.testing import tiny_run

PAGE = Path(__file__).parents[2] / "docs" / "hooks.md"

ENGINE = {
    "attributes",
    "bind",
    "calls",
    "choose_step",
    "device_time",
    "diverged_at",
    "eval_steps",
    "evaluated_at",
    "events",
    "facts",
    "feed",
    "fire",
    "first_step",
    "has_started",
    "is_between_steps",
    "limits",
    "make_optimizer",
    "measure_batch",
    "on_stall",
    "plan",
    "precision",
    "release",
    "report_batch",
    "save_reasons",
    "resume",
    "rollbacks",
    "saver",
    "take_step",
    "train_metrics",
    "updater",
    "watch",
    "writer",
}
"""What only the engine needs of a run. Make this shorter, not longer."""


def documented() -> set[str]:
    """Names in the first column of the tables under "What a run offers"."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## What a run offers\n")[2]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {re.split(r"[.(\[]", code)[0] for row in rows for code in re.findall(r"`([^`]+)`", row)}


def test_the_page_lists_every_attribute_of_a_run_but_those_of_the_engine() -> None:
    run = tiny_run()
    names = {name for name in {*dir(run), *type(run).__annotations__} if not name.startswith("_")}
    assert {"not on the page": names - documented() - ENGINE, "gone": documented() - names} == {
        "not on the page": set(),
        "gone": set(),
    }
    assert names >= ENGINE
