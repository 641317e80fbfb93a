"""The values of a trial are a layer of their own between the file and the command line."""

from __future__ import annotations

from epochal.config import load
from epochal.records.folder.provenance import collect_provenance

TEXT = """\
optim: {lr: 1.0, type: adam}
sweep:
  space:
    optim.lr: {min: 0.1, max: 1}
    model: {width: [1, 2]}
  parameters:
    data: {parameters: {size: {value: 3}}}
"""
TRIAL = {"optim.lr": 0.5, "model.width": 2, "data.size": 3}


def test_a_trial_sets_values_at_the_place_of_their_range(write) -> None:
    config = load(write("c.yaml", TEXT), trial=TRIAL)
    assert not config.problems
    assert config.root.to_plain() == {
        "optim": {"lr": 0.5, "type": "adam"},
        "model": {"width": 2},
        "data": {"size": 3},
    }
    rows = {"optim.lr": (4, 15), "model.width": (5, 20), "data.size": (7, 31)}
    for key, (line, column) in rows.items():
        node = config.root.get(key)
        assert (node.layer, node.place.name) == ("sweep", "c.yaml"), key
        assert (node.place.line, node.place.column) == (line, column), key


def test_provenance_has_the_sweep_and_the_replaced_value(write) -> None:
    config = load(write("c.yaml", TEXT), trial={"optim.lr": 0.5})
    found = collect_provenance(config.root, [])["optim.lr"]
    assert found[0]["layer"] == "sweep"
    assert [one["value"] for one in found] == [0.5, 1.0]


def test_the_command_line_wins_over_a_trial(write) -> None:
    config = load(write("c.yaml", TEXT), trial=TRIAL, overrides=["optim.lr=2"])
    node = config.root.get("optim.lr")
    assert (node.value, node.layer) == (2, "command line")
    assert node.replaced is not None
    assert node.replaced.value == 0.5


def test_a_trial_wins_over_a_variant(write) -> None:
    text = TEXT + "variants: {slow: {optim.lr: 0.01}}\n"
    assert (
        load(write("c.yaml", text), variant="slow", trial=TRIAL).root.get("optim.lr").value == 0.5
    )


def test_a_key_that_cannot_be_set_is_reported_at_its_range(write) -> None:
    text = "tag: x\nsweep: {space: {tag.deep: [1]}}\n"
    (problem,) = load(write("c.yaml", text), trial={"tag.deep": 1}).problems
    assert problem.key == "sweep.space.tag.deep"
    assert problem.place is not None
    assert problem.place.line == 2


def test_an_override_finds_a_key_that_is_written_with_dots(write) -> None:
    path = write("c.yaml", TEXT)
    rows = {
        "sweep.space.optim.lr.min=0.2": {"optim.lr": {"min": 0.2, "max": 1}},
        "sweep.space.optim.lr=[1, 2]": {"optim.lr": [1, 2]},
        "sweep.space.optim.lr=$delete": {},
        "sweep.space.optim.eps=[1]": {
            "optim.lr": {"min": 0.1, "max": 1},
            "optim": {"eps": [1]},
        },
    }
    for written, expected in rows.items():
        config = load(path, overrides=[written])
        assert not config.problems, written
        assert config.sweep is not None
        found = config.sweep.to_plain()["space"]
        assert found == expected | {"model": {"width": [1, 2]}}, written
