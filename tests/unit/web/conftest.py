"""Fixtures of the tests of the web server: some runs, and a browser that signed in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browsing import Browser
from comparing import make_run

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS = ("20261114-100000-aaaa", "20261114-110000-bbbb", "20261114-120000-cccc")


@pytest.fixture(scope="session")
def made_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs, to be copied."""
    root = tmp_path_factory.mktemp("made") / "runs"
    for number, name in enumerate(RUNS):
        points = {
            "train/loss": {step: 1.0 / (step + 1) + number for step in range(10)},
            "val/acc": {4: 0.5 + number / 10, 9: 0.6 + number / 10},
        }
        made = make_run(
            root / "shop" / "t" / name,
            {"optim.lr": 0.1 * (number + 1), "seed": number, "task.augment": number > 0},
            points=points,
            status="failed" if number == 2 else "finished",
            metrics={"val/acc": 0.6 + number / 10},
            best=0.6 + number / 10,
            format=1,
            id=name,
            created=f"2026-11-14T1{number}:00:00+00:00",
        )
        (made.path / "README.md").write_text(f"# run {number}\n\nWhy not?\n")
        (made.path / "logs").mkdir()
        lines = "".join(f"line {i} of {name}\n" for i in range(100))
        (made.path / "logs" / "run.log").write_text(lines)
    return root


@pytest.fixture
def runs(made_runs: Path, tmp_path: Path) -> Path:
    """A folder with three runs; the last one failed."""
    return Path(shutil.copytree(made_runs, tmp_path / "runs"))


@pytest.fixture
def stranger(runs: Path) -> Iterator[Browser]:
    """A browser that has not opened the link."""
    browser = Browser(runs)
    yield browser
    browser.close()


@pytest.fixture
def browser(stranger: Browser) -> Browser:
    """A browser that opened the link."""
    stranger.sign_in()
    return stranger


@pytest.fixture
def busy_browser(runs: Path) -> Iterator[Browser]:
    """The same for many requests: the index is not refreshed again."""
    browser = Browser(runs, is_fresh=False)
    browser.sign_in()
    yield browser
    browser.close()
