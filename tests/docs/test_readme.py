"""The first example of the README prints what the README shows."""

from __future__ import annotations

import re
from pathlib import Path

import forked

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
CODE = README.split("```python\n", 1)[1].split("```", 1)[0]
SHOWN = re.findall(r"^    \d\d:\d\d:\d\d (.*)$", README, re.MULTILINE)


def normalise(line: str) -> str:
    """A line without durations and folder, which differ from run to run."""
    line = re.sub(r"\([\d.]+ m?s\)|(eta|time|data_time): \S+", "", line)
    return re.sub(r"folder: .*", "folder:", line)


def test_first_example_prints_the_output_in_the_readme(tmp_path: Path) -> None:
    done = forked.run("-c", CODE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = {normalise(line.partition(" ")[2]) for line in done.stdout.splitlines()}
    assert len(SHOWN) >= 8
    assert not [line for line in SHOWN if normalise(line) not in printed]


def test_first_example_has_about_twenty_lines() -> None:
    assert len(CODE.splitlines()) <= 21
