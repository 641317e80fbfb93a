"""Values of a search space that some trials would be refused for are found before the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from epochal.config import Config, load
from epochal.experiment.config.check_file import check_file
from epochal.sweep.check_space import check_sweep, find_space_problems
from epochal.sweep.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PARTS = """
import torch
from typing import Literal
from epochal.testing import TinyTask


class Net(torch.nn.Linear):
    def __init__(self, *, width: int = 4, kind: Literal["a", "b"] = "a") -> None:
        super().__init__(4, 3)


class Points(TinyTask):
    pass
"""
CONFIG = """\
task: parts.Points
model: {{type: parts.Net, width: 4}}
optim: {{type: adam, lr: 0.1}}
train: {{for: 1ep}}
monitor: -val/loss
sweep:
  method: random
  space:
{space}
"""


def problems_of(folder: Path, *space: str, more: str = "") -> list[str]:
    (folder / "parts.py").write_text(PARTS)
    path = folder / "c.yaml"
    path.write_text(CONFIG.format(space="\n".join(f"    {line}" for line in space)) + more)

    def load_trial(values: Mapping[str, object]) -> Config:
        return load(path, trial=values)

    found = check_file(path, [], {})
    assert not found.problems
    checked = found.checked[0]
    settings = read_settings(checked.config.sweep, checked.report.expanded)
    return [
        f"{one.key}:{one.place.line if one.place else ''}: {one.what}"
        for one in find_space_problems(checked, settings, load_trial)
    ]


def test_values_are_checked_against_signatures(tmp_path: Path) -> None:
    rows = {
        ("model.width: {min: 1, max: 64}", "optim.lr: {min: 1e-4, max: 1, log: true}"): [],
        ("model.width: {min: 0.5, max: 2.5}",): ["model.width", "expected a whole number"],
        ("model.kind: [a, c]",): ["model.kind", "'c'"],
        ("model.depth: [1, 2]",): ["model.depth", "depth"],
        ("optim.lr: {min: -1.0, max: 1.0}",): ["optim.lr", "-1"],
        ("optim: [{type: adam}, {type: adamm}]",): ["optim", "adamm"],
        ("train.for: [1ep, soon]",): ["train.for", "soon"],
    }
    for space, words in rows.items():
        found = problems_of(tmp_path, *space)
        assert bool(found) == bool(words), (space, found)
        if words:
            key, value = words
            assert found[0].startswith(f"sweep.space.{key}:9: "), found
            assert value in found[0], found


def test_a_value_that_is_active_only_under_a_condition_is_checked_there(tmp_path: Path) -> None:
    space = (
        "optim.type: [adam, sgd]",
        "optim.momentum: {values: [0.9], when: {optim.type: sgd}}",
    )
    assert problems_of(tmp_path, *space) == []
    (found,) = problems_of(tmp_path, "optim.type: [adam, sgd]", "optim.momentum: [0.9]")
    assert found.startswith("sweep.space.")
    assert "momentum" in found


def test_a_mistake_is_reported_for_its_own_key(tmp_path: Path) -> None:
    (found,) = problems_of(tmp_path, "optim.lr: [0.1, 0.2]", "model.widht: [1, 2]")
    assert found.startswith("sweep.space.model.widht:10: unknown argument 'widht'"), found
    (found,) = problems_of(tmp_path, "optim.lr: [0.1, 0.2]", "trainer.depth: [1, 2]")
    assert found == "sweep.space.trainer.depth:10: unknown section 'trainer'"


def test_metrics_and_constraints_that_no_trial_can_meet_are_reported(tmp_path: Path) -> None:
    rows = {
        "objective: -val/loss": "",
        "objective: [-val/loss, +val/acc]": "",
        "metric: {name: val/acc, goal: maximize}": "",
        "objective: -val/lsos": "objective:10: nothing produces the metric 'val/lsos'",
        "objective: [-val/loss, +val/acy]": "objective:10: nothing produces the metric 'val/acy'",
        "constraints: [model.width * 2 <= 2]": "",
        "constraints: [model.width > 2]": "constraints:10: no values of the space meet all of them",
        "constraints: [val/lsos <= 2]": "constraints:10: nothing produces the metric 'val/lsos'",
    }
    for line, expected in rows.items():
        found = problems_of(tmp_path, "model.width: [1, 2]", more=f"  {line}\n")
        assert found == ([f"sweep.{expected}"] if expected else []), line


def test_an_objective_does_not_switch_the_loss_of_evaluations_on(tmp_path: Path) -> None:
    more = "  objective: -val/loss\ntrain: {for: 1ep, eval_loss: false}\nmonitor: +val/acc\n"
    lines = CONFIG.replace("train: {{for: 1ep}}\n", "").replace("monitor: -val/loss\n", "")
    (tmp_path / "parts.py").write_text(PARTS)
    path = tmp_path / "c.yaml"
    for eval_loss, expected in (("false", 1), ("true", 0)):
        text = lines.format(space="    model.width: [1, 2]") + more.replace("false", eval_loss)
        path.write_text(text)
        _, problems = check_sweep(check_file(path, [], {}).checked[0])
        assert len(problems) == expected, eval_loss
