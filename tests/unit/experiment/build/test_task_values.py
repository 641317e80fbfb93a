"""Tests of ``${task:NAME}``: a value of the task in the section of the model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import epochal as ep
from epochal.errors import ConfigError
from epochal.records import read_run
from small_project import run_folders, write

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command

CHARS = """
    from pathlib import Path
    import numpy as np
    import torch
    from torch import nn
    import epochal as ep
    from epochal.testing import TinyModel, TinyTask

    class Words:
        count = np.int64(7)

    class Chars(TinyTask):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = float(Path("dropout.txt").read_text())
            self.words = Words()
            self.sizes = (2, torch.tensor(3))
            self.widths = [2, 3]

    class Net(TinyModel):
        def __init__(self, *, dropout: float, width: int = 1, widths: list[int] = []) -> None:
            super().__init__(dropout=dropout)
            self.widths = widths

    class Prepared(ep.Experiment):
        @staticmethod
        def prepare_model(args):
            return Net(dropout=args.model.dropout)
"""
CONFIG = """
    task: {type: shop.chars.Chars}
    model: {type: shop.chars.Net, dropout: "${task:dropout}"}
    optim: {type: SGD}
    train: {for: 1ep}
"""


@pytest.fixture
def chars(shop: Path) -> Path:
    """A project whose task reads a value from a file."""
    write(shop / "shop" / "chars.py", CHARS)
    write(shop / "chars.yaml", CONFIG)
    (shop / "dropout.txt").write_text("0.25")
    return shop


def test_a_value_of_the_task_is_built_recorded_and_searched(chars: Path, epochal: Command) -> None:
    done = epochal("run", "chars.yaml", "--device", "cpu", "model.width=${task:words.count}")
    assert done.code == 0, done.err
    (folder,) = run_folders(chars)
    assert '"${task:dropout}"' in (folder / "config" / "expanded.yaml").read_text()
    observed = json.loads((folder / "config" / "observed.json").read_text())["model"]
    assert (observed["arguments"]["dropout"], observed["arguments"]["width"]) == (0.25, 7)
    values = read_run(folder).run["task_values"]
    assert values == {"model.dropout": 0.25, "model.width": 7}
    assert folder.name in epochal("runs", "--where", "model.dropout = 0.25").out
    shown = epochal("show", "last", "--explain", "model.dropout").out
    assert "model.dropout = 0.25" in shown
    assert "written as ${task:dropout}" in shown
    assert epochal("test", "last", "--device", "cpu").code == 0
    assert epochal("plan", "chars.yaml", "--device", "cpu").code == 0


def test_lists_and_prepare_methods_get_the_value_too(chars: Path) -> None:
    model = {"type": "shop.chars.Net", "dropout": 0.5, "widths": [1, "${task:words.count}"]}
    choices: Any = {"device": "cpu", "no_file": True, "fast": True, "raise_errors": True}
    result = ep.run("chars.yaml", overrides=[f"model={json.dumps(model)}"], **choices)
    assert result.config["model"]["widths"] == [1, 7]
    result = ep.run("chars.yaml", overrides=["model.widths=${task:widths}"], **choices)
    assert result.config["model"]["widths"] == [2, 3]
    result = ep.run("chars.yaml", overrides=["experiment=shop.chars.Prepared"], **choices)
    assert result.config["model"]["dropout"] == 0.25


def test_a_run_is_not_resumed_with_another_value(chars: Path, epochal: Command) -> None:
    assert epochal("run", "chars.yaml", "--device", "cpu").code == 0
    words = ("resume", "last", "train.for=2ep", "--device", "cpu")
    (chars / "dropout.txt").write_text("0.5")
    done = epochal(*words)
    assert done.code == 78
    assert "model.dropout: 0.25 -> 0.5" in done.err
    (folder,) = run_folders(chars)
    assert read_run(folder).summary.status == "finished"  # as before
    assert epochal(*words, "--allow-changed").code == 0
    assert read_run(folder).run["task_values"] == {"model.dropout": 0.5}
    assert "model.dropout: 0.25 -> 0.5" in epochal("show", "last").out


def test_a_model_is_loaded_with_the_recorded_values(chars: Path) -> None:
    words = ["model.widths=[1, '${task:words.count}']"]
    result = ep.run("chars.yaml", overrides=words, device="cpu")
    (chars / "dropout.txt").unlink()  # so that the task cannot be built any more
    model = ep.load(result.dir)
    assert (model.dropout.p, model.widths) == (0.25, [1, 7])
    assert ep.load(result.dir, overrides=["model.dropout=0.5"]).dropout.p == 0.5
    with pytest.raises(
        ConfigError, match=r"model\.width: \$\{task:words\.count\} is known only when the"
    ):
        ep.load(result.dir, overrides=["model.width=${task:words.count}"])


def test_references_that_lead_nowhere_are_explained(chars: Path, epochal: Command) -> None:
    for override, message in {
        "model.dropout=${task:drop_rate}": "shop.chars.Chars has no attribute 'drop_rate'",
        "model.dropout=a${task:dropout}": "cannot be part of a text",
        "model.dropout=${task:2}": "names no attribute of the task",
        "model.dropout=${tusk:dropout}": "write ${section.key}, ${env:NAME} or ${task:NAME}",
        "optim.lr=${task:dropout}": "'optim' is read before the task is built",
        "model.width=${model.dropout} wide": "cannot be part of a text",
    }.items():
        done = epochal("check", "chars.yaml", override)
        assert done.code == 78, override
        assert message in done.err, override
    choices: Any = {"device": "cpu", "no_file": True, "raise_errors": True}
    for reference, message in {
        "words.cuont": "Words has no attribute 'cuont'\n(.|\n)*did you mean 'count'",
        "words.size": "Words has no attribute 'size'",
        "sizes": "is of type 'tuple', which a config cannot hold",
        "batch_loss": "is of type 'method'",
    }.items():
        with pytest.raises(ConfigError, match=message):
            ep.run("chars.yaml", overrides=[f"model.dropout=${{task:{reference}}}"], **choices)


def test_a_reference_may_lead_through_another_key(chars: Path) -> None:
    choices: Any = {"device": "cpu", "no_file": True, "fast": True, "raise_errors": True}
    result = ep.run("chars.yaml", overrides=["model.width=${model.dropout}"], **choices)
    assert result.config["model"]["width"] == 0.25
