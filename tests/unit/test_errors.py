"""Tests of the error tree and of how mistakes are shown."""

from __future__ import annotations

from epochal import errors
from epochal.errors import (
    ConfigError,
    EpochalError,
    Place,
    Problem,
    misspelling_of,
    nearest,
    nearest_few,
    suggest,
)


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


def test_no_two_ends_of_a_run_have_the_same_exit_code() -> None:
    codes = {name: code for name, code in vars(errors).items() if name.endswith("_EXIT_CODE")}
    assert len(codes) == 6
    assert len({*codes.values()}) == len(codes)


def test_exit_codes_are_those_that_scripts_depend_on() -> None:
    for name, code in (
        ("ConfigError", 78),
        ("UnknownComponentError", 78),
        ("MissingFileError", 66),
        ("TaskError", 70),
        ("DataError", 65),
        ("CheckpointError", 74),
        ("RecordError", 74),
        ("UntrustedCodeError", 77),
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


def test_a_close_name_is_suggested_or_a_few_names_are_listed() -> None:
    for known, hint in (
        (["SGD", "AdamW"], "did you mean 'AdamW'?"),
        (["b", "a"], "known: a, b"),
        ([], ""),
        ([f"name{i}" for i in range(40)], ""),
    ):
        assert suggest("adamw", known) == hint


def test_words_of_the_command_line_have_no_line_number() -> None:
    place = Place("command line", 1, 10, "optim.lr=fast", 4)
    shown = str(Problem("optim.lr", "expected a number, got 'fast'", place))
    assert shown.splitlines()[1] == "  set on the command line"
    assert shown.splitlines()[3] == "             ^^^^"


def test_problems_without_a_place_get_one() -> None:
    known = Place("a.yaml", 1, 1)
    error = ConfigError(Problem("a", "one", known), Problem("b", "two"), Problem("c", "three"))
    error.locate({"a": Place("x.yaml", 9, 9), "b": Place("b.yaml", 2, 3)}.get)
    assert [problem.place for problem in error.problems] == [known, Place("b.yaml", 2, 3), None]
    assert "b: two\n  set in b.yaml:2:3" in str(error)


def test_the_closest_name_is_found_whatever_its_case() -> None:
    for name, expected in (
        ("adamm", "Adam"),
        ("ADAMW", "AdamW"),
        ("sdg", "SGD"),
        ("zzz", None),
        ("", None),
    ):
        assert nearest(name, ["SGD", "Adam", "AdamW"]) == expected
    assert nearest("adam", []) is None


def test_a_higher_cutoff_refuses_what_is_only_similar() -> None:
    assert nearest("batch_forwards", ["batch_forward"], cutoff=0.85) == "batch_forward"
    assert nearest("forward_all", ["batch_forward"], cutoff=0.85) is None


def test_several_names_come_with_the_closest_first() -> None:
    assert nearest_few("adamw", ["SGD", "Adam", "NAdam", "AdamW"], 2) == ("AdamW", "Adam")


KNOWN = ("batch_metric", "epoch_end", "onBatchEnd", "setup", "to", "postprocess", "eval_end")


MISSPELLINGS = [
    ("batch_metrics", "batch_metric"), ("bacth_metirc", "batch_metric"),
    ("batchMetric", "batch_metric"), ("epoch_ned", "epoch_end"), ("on_batch_end", "onBatchEnd"),
    ("setpu", "setup"), ("set_up", "setup"), ("val_end", "eval_end"),
    ("post_process", "postprocess"), ("batch_metric_fn", None), ("batch_metal", None),
    ("epoch_and", None), ("setups", None), ("tot", None), ("do", None), ("", None),
]  # fmt: skip


def test_a_misspelling_has_the_same_words_with_one_typo() -> None:
    for written, meant in MISSPELLINGS:
        assert misspelling_of(written, KNOWN) == meant
