"""The web page's launcher with a real project: checks without executing, and real frozen jobs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from epochal.cli.launcher import QueueLauncher
from epochal.errors import ConfigError
from epochal.launch.queue.queue import Queue

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
project: shop
tag: small
desc: a small one
task: {type: shop.parts.Points, batch_size: 8}
model: {type: shop.parts.Net}
optim: {type: SGD, lr: 0.1}
train: {for: 2ep}
"""


@pytest.fixture
def file(shop: Path) -> Path:
    path = shop / "small.yaml"
    path.write_text(CONFIG)
    return path


def test_values_of_a_config_are_numbers_and_booleans(file: Path) -> None:
    found = QueueLauncher(file.parent / "runs").check(file, [], "")
    assert found.problems == ()
    assert found.desc == "a small one"
    values = {one.key: (one.value, one.is_default) for one in found.values}
    assert values["optim.lr"] == (0.1, False)
    assert values["task.batch_size"] == (8, False)
    assert values["task.num_samples"] == (24, True)
    assert not any(key.startswith("record.") for key in values)
    assert "shop.parts" not in sys.modules


def test_checked_experiments_become_jobs(file: Path) -> None:
    runs = file.parent / "runs"
    launcher = QueueLauncher(runs)
    wrong = launcher.check(file, ["task.batch_size=0.5"], "")
    assert [one.key for one in wrong.problems] == ["task.batch_size"]
    with pytest.raises(ConfigError, match="batch_size"):
        launcher.add(file, ["task.batch_size=0.5"], "")
    assert Queue(runs).list_jobs() == []
    assert launcher.add(file, ["optim.lr=0.5"], "my try") == [1]
    (job,) = Queue(runs).list_jobs("waiting")
    assert job.title.startswith("small.yaml")
    text = job.file.read_text()
    assert "optim.lr=0.5" in text
    assert "my try" in text
