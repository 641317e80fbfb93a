"""What commands print on a narrow terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from small_project import run_folders
from terminal import run_on_terminal, without_colours

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = (
    "check config.yaml optim.lrr=1 model.dropout=[1,2,3] train.evaluate_every=1ep",
    "plan config.yaml",
    "runs",
    "diff last FIRST",
    "mail",
)


def is_too_wide(line: str, columns: int) -> bool:
    """Whether a line does not fit; words to copy are never broken, and log lines not wrapped."""
    is_log = re.match(r"\d\d:\d\d:\d\d ", line)
    is_copied = "epochal " in line or len(line.rpartition(" ")[2]) + 11 > columns
    return len(line) > columns and not is_log and not is_copied


def run_narrow(shop: Path, *words: str) -> str:
    """What a command prints on 40 columns, where every line has to fit."""
    text = run_on_terminal(*words, cwd=shop, columns=40).stdout
    assert "Traceback" not in text, words
    lines = without_colours(text).replace("\r\n", "\n").split("\n")
    shown = [line.rpartition("\r")[2].rstrip() for line in lines]
    assert [line for line in shown if is_too_wide(line, 40)] == [], words
    return text


def test_lines_fit_a_terminal_of_40_columns(shop: Path) -> None:
    run_narrow(shop, "run", "config.yaml")
    (first,) = run_folders(shop)
    text = run_narrow(shop, "run", "config.yaml", "task.type=shop.parts.FloatLoss")
    assert "\x1b[1;31m run failed: TaskError \x1b[0m" in text
    for command in COMMANDS:
        run_narrow(shop, *command.replace("FIRST", first.name).split())
