"""The list of requirements is complete, and the tests that it names exist."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

from features import FILE, GROUPS, Feature, describe, read_features

ROOT = Path(__file__).parents[1]
FEATURES = read_features()
NUMBERS = [
    f"{letter}{index + 1}" for letter, (_, count) in GROUPS.items() for index in range(count)
]
DEFECTS_WITH_TESTS = [*range(1, 20), 24, 25]
MAX_TITLE = 75


@cache
def names_in(file: Path) -> frozenset[str]:
    """The test functions of a file, and ``Class::method`` of its test classes."""
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = [item.name for item in node.body if isinstance(item, ast.FunctionDef)]
            found |= {node.name, *(f"{node.name}::{name}" for name in methods)}
    return frozenset(found)


def is_there(test: str) -> bool:
    """Whether a test exists that pytest would call by this id, parameters left out."""
    path, _, name = test.partition("::")
    file = ROOT / path
    parts = name.partition("[")[0]
    is_test = parts.rpartition("::")[2].startswith(("test_", "Test"))
    return is_test and file.is_file() and parts in names_in(file)


def test_every_requirement_is_listed_once_and_in_order() -> None:
    assert [feature.number for feature in FEATURES] == NUMBERS


def test_entries_have_no_unknown_keys() -> None:
    for number, entry in tomllib.loads(FILE.read_text(encoding="utf-8")).items():
        assert {"title"} <= entry.keys() <= {"title", "tests", "part"}, number


def test_titles_are_short_and_parts_say_something() -> None:
    for feature in FEATURES:
        assert feature.title.strip() == feature.title, feature.number
        assert 0 < len(feature.title) <= MAX_TITLE, feature.number
        assert feature.part.strip() == feature.part, feature.number


def test_tests_that_prove_a_requirement_exist() -> None:
    named = [(feature.number, test) for feature in FEATURES for test in feature.tests]
    assert [(number, test) for number, test in named if not is_there(test)] == []
    assert [one for one, count in Counter(named).items() if count > 1] == []


def test_known_defects_have_a_regression_test() -> None:
    numbers = {f"D{number}" for number in DEFECTS_WITH_TESTS}
    done = {one.number for one in FEATURES if one.is_done}
    assert numbers - done == set()


def test_only_ids_of_existing_tests_are_accepted() -> None:
    missing = (
        "tests/test_features.py::test_missing",
        "tests/test_nowhere.py::test_every_requirement_is_listed_once_and_in_order",
        "tests/test_features.py::names_in",
        "tests/test_features.py",
    )
    assert [test for test in missing if is_there(test)] == []
    assert is_there("tests/test_features.py::test_known_defects_have_a_regression_test[3]")
    assert is_there("tests/conformance/test_hooks.py::TestConsole")


def test_missing_requirements_are_shown_with_what_they_lack() -> None:
    features = [
        Feature("Q1", "layers", ("tests/test_a.py::test_b",)),
        Feature("Q2", "command line", ("tests/test_a.py::test_b",), "a way to resume"),
        Feature("D1", "lost caches"),
    ]
    shown = describe(features)
    assert "Q1" not in shown
    assert "  Q2   command line\n         missing: a way to resume\n" in shown
    assert "  D1   lost caches\n" in shown
    assert [line.split()[-3:] for line in shown.splitlines() if line.startswith("all")] == [
        ["1", "1", "1"]
    ]
    assert all(len(line) <= 100 for line in describe(FEATURES).splitlines())
