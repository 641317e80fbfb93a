"""Tests of epochal.records.compare.difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comparing import command_line, default, make_run, origin
from epochal.records.compare.difference import (
    compare_tables,
    parameter_tables,
    read_settings,
    seed_table,
)

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.compare.difference import SectionComparison


def compared(tmp_path: Path, *configs: dict[str, Any]) -> SectionComparison:
    records = [make_run(tmp_path / str(i), config) for i, config in enumerate(configs)]
    return compare_tables(parameter_tables(records))


def test_a_difference_shows_where_each_value_was_set(tmp_path: Path) -> None:
    facts = compared(
        tmp_path,
        {"optim.lr": origin(0.1, "a.yaml:14")},
        {"optim.lr": command_line(0.2)},
        {"optim.lr": default(0.3, "AdamW")},
    )
    [found] = facts.differences
    assert found.key == "optim.lr"
    assert [(side.value, side.where) for side in found.sides if side] == [
        (0.1, "a.yaml:14:1"),
        (0.2, "command line"),
        (0.3, "default of AdamW"),
    ]


def test_an_explicit_value_equals_the_same_default(tmp_path: Path) -> None:
    facts = compared(
        tmp_path, {"optim.eps": default(1e-8)}, {"optim.eps": origin(1e-8, "a.yaml:3")}
    )
    assert facts.differences == ()
    assert facts.num_same == 2  # the monitor, too


def test_a_changed_default_is_a_difference(tmp_path: Path) -> None:
    facts = compared(tmp_path, {"optim.eps": default(1e-8)}, {"optim.eps": default(1e-6)})
    assert [one.key for one in facts.differences] == ["optim.eps"]
    assert not facts.differences[0].is_minor


def test_defaults_of_another_class_are_minor_differences(tmp_path: Path) -> None:
    facts = compared(
        tmp_path,
        {"optim.type": "SGD", "optim.nesterov": default(False), "optim.momentum": 0.9},
        {"optim.type": "AdamW", "optim.amsgrad": default(False)},
    )
    minor = {one.key: one.is_minor for one in facts.differences}
    assert minor == {
        "optim.type": False,
        "optim.nesterov": True,
        "optim.momentum": False,
        "optim.amsgrad": True,
    }


def test_seed_tag_description_and_record_are_no_parameters(tmp_path: Path) -> None:
    one = {"seed": 1, "tag": "a", "desc": "x", "record.log_dir": "runs"}
    other = {"seed": 2, "tag": "b", "desc": "y", "record.log_dir": "elsewhere"}
    assert compared(tmp_path, one, other).differences == ()


def test_overrides_of_a_resumed_run_count(tmp_path: Path) -> None:
    overrides = ["train.for=9ep", "optim.momentum=0", "train.until=$delete"]
    attempts = [{"attempt": 0}, {"attempt": 1, "overrides": overrides}]
    config = {"train.for": "3ep", "train.until": "x", "optim.lr": origin(0.1, "a.yaml:2")}
    settings = read_settings(make_run(tmp_path / "a", config, attempts=attempts))
    assert (settings["train.for"].value, settings["optim.momentum"].value) == ("9ep", 0)
    assert settings["train.for"].where == "command line of attempt 1"
    assert settings["optim.lr"].where == "a.yaml:2:1"
    assert "train.until" not in settings
    reverted = make_run(tmp_path / "b", config, attempts=[*attempts, {"attempt": 2}])
    assert read_settings(reverted)["train.for"].value == "3ep"


def hooks(*types: str) -> dict[str, Any]:
    named = {f"hooks.{i}.type": kind for i, kind in enumerate(types)}
    return named | {f"hooks.{i}.every": f"{kind} every" for i, kind in enumerate(types)}


def test_elements_of_lists_with_different_types_are_named_by_type(tmp_path: Path) -> None:
    same = hooks("Probe", "Stop")
    for number, (one, other, keys) in enumerate(
        (
            (
                hooks("my.Probe", "Stop"),
                hooks("Profiler", "my.Probe", "Stop"),
                ["hooks[Profiler].type", "hooks[Profiler].every"],
            ),
            (
                hooks("Probe"),
                hooks("Probe", "Probe"),
                ["hooks[Probe#2].type", "hooks[Probe#2].every"],
            ),
            (same, same | {"hooks.1.every": "x"}, ["hooks.1.every"]),
        )
    ):
        found = compared(tmp_path / str(number), one, other)
        assert [difference.key for difference in found.differences] == keys


def test_values_without_provenance_are_compared(tmp_path: Path) -> None:
    record = make_run(tmp_path / "a", {"optim.lr": 0.1})
    (record.path / "config" / "provenance.json").unlink()
    settings = read_settings(record)
    assert settings["optim.lr"].value == 0.1
    assert settings["optim.lr"].where == ""


def test_the_seed_comes_from_the_config_or_from_run_json(tmp_path: Path) -> None:
    record = make_run(tmp_path / "a", {"seed": command_line(7)})
    assert seed_table(record)["seed"].value == 7
    assert seed_table(record)["seed"].where == "command line"
    record = make_run(tmp_path / "b", {"seed": 7})
    for path in (record.path / "config").iterdir():
        path.unlink()
    assert seed_table(record)["seed"].value == 7
