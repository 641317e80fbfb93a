"""Tests of the error tree and of how mistakes are shown."""

from __future__ import annotations

from epochal import errors
from epochal.errors import ConfigError, EpochalError, Place, Problem, suggest


def all_kinds() -> list[type[EpochalError]]:
    kinds: list[type[EpochalError]] = [EpochalError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return [kind for kind in kinds if kind.__module__ == errors.__name__]


def test_every_error_and_its_exit_code_stand_in_the_tree_at_the_top() -> None:
    lines = (errors.__doc__ or "").splitlines()
    for kind in all_kinds():
        (line,) = [line for line in lines if kind.__name__ in line.split()]
        inherited = kind.exit_code in {base.__dict__.get("exit_code") for base in kind.__bases__}
        assert inherited or str(kind.exit_code) in line.split()


def test_exit_codes_are_those_that_scripts_depend_on() -> None:
    for name, code in (
        ("ConfigError", 78),
        ("UnknownComponentError", 78),
        ("MissingFileError", 66),
        ("TaskError", 70),
        ("DataError", 65),
        ("CheckpointError", 74),
        ("RecordError", 74),
    ):
        assert getattr(errors, name).exit_code == code


def test_place_reads_as_editors_expect_it() -> None:
    assert str(Place("a.yaml", 3, 7)) == "a.yaml:3:7"
    assert str(Place("a.py")) == "a.py"


def test_problem_says_where_what_and_what_now() -> None:
    place = Place("a.yaml", 3, 7, text="  lr: oops", width=4)
    problem = Problem("optim.lr", "expected a number, got 'oops'", place, "write 1e-3")
    assert str(problem) == (
        "optim.lr: expected a number, got 'oops'\n"
        "  set in a.yaml:3:7\n"
        "    lr: oops\n"
        "        ^^^^\n"
        "  write 1e-3"
    )


def test_problem_without_a_place_draws_no_caret() -> None:
    assert str(Problem("--gpus", "got 2", hint="use 1")) == "--gpus: got 2\n  use 1"
    assert str(Problem("a", "b", Place("file.py"))) == "a: b\n  set in file.py"


def test_caret_never_leaves_the_line() -> None:
    place = Place("a.yaml", 1, 4, text="a: b", width=50)
    assert str(Problem("a", "b", place)).splitlines()[-1] == "       ^"


def test_blank_source_line_gets_no_caret() -> None:
    assert "^" not in str(Problem("a", "b", Place("a.yaml", 1, 1, text="   ")))


def test_config_error_shows_all_problems_with_a_blank_line_between() -> None:
    error = ConfigError(Problem("a", "one"), Problem("b", "two"))
    assert str(error) == "a: one\n\nb: two"
    assert [problem.key for problem in error.problems] == ["a", "b"]


def test_close_names_are_suggested_whatever_their_case() -> None:
    assert suggest("adamw", ["SGD", "AdamW"]) == "did you mean 'AdamW'?"


def test_few_known_names_are_listed_when_none_is_close() -> None:
    assert suggest("zzz", ["b", "a"]) == "known: a, b"


def test_nothing_is_suggested_when_nothing_helps() -> None:
    assert suggest("zzz", []) == ""
    assert suggest("zzz", [f"name{i}" for i in range(40)]) == ""


def test_words_of_the_command_line_have_no_line_number() -> None:
    place = Place("command line", 1, 10, "optim.lr=fast", 4)
    shown = str(Problem("optim.lr", "expected a number, got 'fast'", place))
    assert shown.splitlines()[1] == "  set on the command line"
    assert shown.splitlines()[3] == "             ^^^^"


def test_problems_without_a_place_learn_it() -> None:
    known = Place("a.yaml", 1, 1)
    error = ConfigError(Problem("a", "one", known), Problem("b", "two"), Problem("c", "three"))
    error.locate({"a": Place("x.yaml", 9, 9), "b": Place("b.yaml", 2, 3)}.get)
    assert [problem.place for problem in error.problems] == [known, Place("b.yaml", 2, 3), None]
    assert "b: two\n  set in b.yaml:2:3" in str(error)
