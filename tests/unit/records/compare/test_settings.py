"""Tests of epochal.records.compare.settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comparing import command_line, default, make_run, origin
from epochal.records.compare.difference import compare_tables
from epochal.records.compare.settings import parameter_tables, read_settings, seed_table

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.records.compare.difference import SectionComparison


def compared(tmp_path: Path, *configs: dict[str, Any]) -> SectionComparison:
    records = [make_run(tmp_path / str(i), config) for i, config in enumerate(configs)]
    return compare_tables(parameter_tables(records))


def test_parameter_that_differs_says_where_each_was_set(tmp_path: Path) -> None:
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


def test_default_that_was_written_out_equals_one_that_was_not(tmp_path: Path) -> None:
    facts = compared(
        tmp_path, {"optim.eps": default(1e-8)}, {"optim.eps": origin(1e-8, "a.yaml:3")}
    )
    assert facts.differences == ()
    assert facts.num_same == 2  # the monitor, too


def test_default_that_changed_differs(tmp_path: Path) -> None:
    facts = compared(tmp_path, {"optim.eps": default(1e-8)}, {"optim.eps": default(1e-6)})
    assert [one.key for one in facts.differences] == ["optim.eps"]
    assert not facts.differences[0].is_minor


def test_defaults_of_another_class_are_minor_and_what_was_set_is_not(tmp_path: Path) -> None:
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


def test_names_seed_and_places_are_no_parameters(tmp_path: Path) -> None:
    one = {"seed": 1, "tag": "a", "desc": "x", "record.log_dir": "runs"}
    other = {"seed": 2, "tag": "b", "desc": "y", "record.log_dir": "elsewhere"}
    assert compared(tmp_path, one, other).differences == ()


def test_what_was_changed_when_a_run_went_on_counts(tmp_path: Path) -> None:
    attempts = [{"attempt": 0}, {"attempt": 1, "overrides": ["train.for=9ep", "optim.momentum=0"]}]
    config = {"train.for": "3ep", "optim.lr": origin(0.1, "a.yaml:2")}
    record = make_run(tmp_path / "a", config, attempts=attempts)
    settings = read_settings(record)
    assert (settings["train.for"].value, settings["optim.momentum"].value) == ("9ep", 0)
    assert settings["train.for"].where == "command line of attempt 1"
    assert settings["optim.lr"].where == "a.yaml:2:1"


def test_what_was_removed_when_a_run_went_on_is_gone(tmp_path: Path) -> None:
    attempts = [{"attempt": 0}, {"attempt": 1, "overrides": ["train.until=$delete"]}]
    record = make_run(tmp_path / "a", {"train.until": "x", "train.for": "1ep"}, attempts=attempts)
    assert "train.until" not in read_settings(record)
    assert "train.for" in read_settings(record)


def test_change_that_was_taken_back_later_does_not_count(tmp_path: Path) -> None:
    changed = {"attempt": 1, "overrides": ["train.for=9ep"]}
    attempts = [{"attempt": 0}, changed, {"attempt": 2}]
    record = make_run(tmp_path / "a", {"train.for": "3ep"}, attempts=attempts)
    assert read_settings(record)["train.for"].value == "3ep"


def hooks(*types: str) -> dict[str, Any]:
    named = {f"hooks.{i}.type": kind for i, kind in enumerate(types)}
    return named | {f"hooks.{i}.every": f"{kind} every" for i, kind in enumerate(types)}


def test_one_more_hook_makes_no_other_hook_differ(tmp_path: Path) -> None:
    facts = compared(tmp_path, hooks("my.Probe", "Stop"), hooks("Profiler", "my.Probe", "Stop"))
    assert [one.key for one in facts.differences] == [
        "hooks[Profiler].type",
        "hooks[Profiler].every",
    ]


def test_hooks_of_the_same_type_are_told_apart(tmp_path: Path) -> None:
    facts = compared(tmp_path, hooks("Probe"), hooks("Probe", "Probe"))
    assert [one.key for one in facts.differences] == [
        "hooks[Probe#2].type",
        "hooks[Probe#2].every",
    ]


def test_elements_keep_their_numbers_where_types_are_the_same(tmp_path: Path) -> None:
    one, other = hooks("Probe", "Stop"), hooks("Probe", "Stop") | {"hooks.1.every": "x"}
    assert [found.key for found in compared(tmp_path, one, other).differences] == ["hooks.1.every"]


def test_values_are_compared_though_nobody_knows_who_set_them(tmp_path: Path) -> None:
    record = make_run(tmp_path / "a", {"optim.lr": 0.1})
    (record.path / "config" / "provenance.json").unlink()
    settings = read_settings(record)
    assert settings["optim.lr"].value == 0.1
    assert settings["optim.lr"].where == ""


def test_seed_is_known_with_who_set_it(tmp_path: Path) -> None:
    record = make_run(tmp_path / "a", {"seed": command_line(7)})
    assert seed_table(record)["seed"].value == 7
    assert seed_table(record)["seed"].where == "command line"


def test_seed_is_known_from_the_start_where_the_config_is_lost(tmp_path: Path) -> None:
    record = make_run(tmp_path / "a", {"seed": 7})
    for path in (record.path / "config").iterdir():
        path.unlink()
    assert seed_table(record)["seed"].value == 7
