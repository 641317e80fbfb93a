from __future__ import annotations

from epochal.check.values.types import (
    describe_type,
    find_type_problem,
    hint_for,
    is_callable_path,
    parse_type,
)
from epochal.config import from_plain

SPEC = {"type": "torch.nn.ReLU"}

FITTING = [
    ("int", 3),
    ("float", 3),
    ("float", 3.5),
    ("bool", True),
    ("str", "x"),
    ("None", None),
    ("int | None", None),
    ("Optional[int]", 3),
    ("typing.Union[int, str]", "x"),
    ("Literal['a', 2]", 2),
    ("list[int]", [1, 2]),
    ("Sequence[float]", [1, 2.5]),
    ("List", ["x", 1]),
    ("set[str]", ["a"]),
    ("tuple[float, float]", [0.9, 1]),
    ("tuple[int, ...]", []),
    ("tuple", [1, "x"]),
    ("dict[str, int]", {"a": 1}),
    ("Mapping[str, float | None]", {"a": None}),
    ("Path", "runs"),
    ("Duration", "10ep"),
    ("Duration | int", 500),
    ("Every", 0),
    ("Every", "0"),
    ("Every | dict[str, Every]", {"val": "1ep"}),
    ("float | Tensor", 0.1),
    ("tuple[float | Tensor, float | Tensor]", [0.9, 0.999]),
    ("Tensor", "anything"),
    ("Tensor | None", 3),
    ("Any", [1]),
    ("", {"a": 1}),
    ("not a type (", 3),
    ("'int | None'", 3),
    ("Annotated[int, Positive]", 3),
    ("int", SPEC),
    ("list[nn.Module]", [SPEC]),
    ("Callable[[int], int]", "pkg.f"),
    ("type[nn.Module]", "torch.nn.ReLU"),
]

WRONG = [
    ("int", 3.5, "expected a whole number, got 3.5"),
    ("int", True, "expected a whole number, got true"),
    ("int", "3", "expected a whole number, got '3'"),
    ("float", True, "expected a number, got true"),
    ("bool", 1, "expected true or false, got 1"),
    ("str", 3, "expected text, got 3"),
    ("int", None, "expected a whole number, got null"),
    ("int | None", "x", "expected a whole number or null, got 'x'"),
    ("Literal['min', 'max']", "mx", "expected 'min' or 'max', got 'mx'"),
    ("Literal[1]", True, "expected 1, got true"),
    ("list[int]", [1, "x"], "expected a list (each a whole number), got [1, 'x']"),
    ("list[int]", 3, "expected a list (each a whole number), got 3"),
    ("tuple[float, float]", [1], "expected a list of 2 values, got [1]"),
    ("tuple[float, float]", [1, "x"], "expected a list of 2 values, got [1, 'x']"),
    ("dict[str, int]", [1], "expected a mapping (each a whole number), got [1]"),
    ("dict[str, int]", {"a": "x"}, "expected a mapping (each a whole number), got {a: 'x'}"),
    ("float | Tensor", "x", "expected a number, got 'x'"),
    ("tuple[str, ...] | None", "val", "expected a list (each text) or null, got 'val'"),
    ("tuple", 1, "expected a list, got 1"),
    ("Duration", 10, "expected a duration, got 10"),
    ("Every", 10, "expected a period, got 10"),
    ("Path", 3, "expected a path, got 3"),
    ("Callable", 3, "expected the dotted path of a class or function, got 3"),
]


def test_fitting_values_have_no_problem() -> None:
    for annotation, value in FITTING:
        assert find_type_problem(from_plain(value), annotation) is None


def test_wrong_values_say_what_was_expected() -> None:
    for annotation, value, problem in WRONG:
        assert find_type_problem(from_plain(value), annotation) == problem


def test_wrong_durations_show_examples() -> None:
    for annotation in ("Duration", "Every", "Duration | None", "int | Duration"):
        for text in ("10 epochs", "ten", "10", "-3ep", "0.5st", ""):
            problem = find_type_problem(from_plain(text), annotation)
            assert problem is not None, annotation
            assert "10ep (epochs), 500st (steps)" in problem, annotation


def test_hints_can_be_typed() -> None:
    for annotation, value, hint in (
        ("int", 1000.0, "write 1000"),
        ("int", "12", "write 12 without quotes"),
        ("float", "1e-3", "write 1e-3 without quotes"),
        ("int", "1_000", "write 1000"),
        ("float | None", "1_000.5", "write 1000.5"),
        ("str", True, "quote it: 'true'"),
        ("list[bool]", True, "write [true]"),
        ("Duration", True, ""),
        ("Literal['float32', 'float64']", "float16", "known: float32, float64"),
        ("Literal['float32', 'float64']", "flaot32", "did you mean 'float32'?"),
        ("float", "abc", ""),
        ("int", "8,16", "for several values: epochal sweep, with them in sweep.space"),
        ("str", 2024, "quote it: '2024'"),
        ("Duration", 10, "write 10ep for epochs or 10st for steps"),
        ("Literal['min', 'max']", "mx", "did you mean 'max'?"),
        ("Literal['min', 'max']", "zz", "known: min, max"),
        ("list[int]", 3, "write [3]"),
        ("tuple[str, ...]", "val", "write [val]"),
        ("dict[str, int]", 3, ""),
        ("int", None, ""),
        ("Every", -1, "write 0 for never"),
        ("Duration", -1, "write for example 10ep"),
        ("Annotated[float, Above(0)] | None", -1, "write a number that is above 0, or null"),
        ("Annotated[float, Above(0)]", -1, "write a number that is above 0"),
    ):
        assert hint_for(from_plain(value), annotation) == hint, (annotation, value)
    assert find_type_problem(from_plain("-1st"), "Every").endswith(", or 0 for never")
    pair = hint_for(from_plain(0.9), "tuple[float, float]", [0.9, 0.999])
    assert pair == "write for example [0.9, 0.999]"


def test_long_values_are_shortened_in_messages() -> None:
    problem = find_type_problem(from_plain(["x" * 200]), "int")
    assert problem is not None
    assert len(problem) < 110


def test_types_are_described_in_words() -> None:
    assert describe_type(parse_type("int | None | Tensor")) == "a whole number or null"
    assert describe_type(parse_type("tuple[()]")) == "an empty list"
    assert describe_type(parse_type("Tensor")) == "a value"


def test_a_text_names_a_callable_only_if_no_text_is_allowed() -> None:
    node = from_plain("pkg.f")
    assert is_callable_path(node, "Callable[[int], int] | None")
    assert not is_callable_path(node, "str | Callable")
    assert not is_callable_path(node, "str")
    assert not is_callable_path(from_plain(None), "Callable | None")


def test_bounds_of_a_type_are_checked() -> None:
    for value, annotation, wrong in (
        (0, "Annotated[int, AtLeast(1)]", "must be at least 1, got 0"),
        (0, "Annotated[int, AtLeast(1)] | None", "must be at least 1, got 0"),
        (0, "Annotated[int | None, AtLeast(1)]", "must be at least 1, got 0"),
        (0.0, "typing.Annotated[float, Above(limit=0)]", "must be above 0, got 0.0"),
        (2, "Annotated[float, AtLeast(0), AtMost(1)]", "must be at most 1, got 2"),
        ("x", "Annotated[int, AtLeast(1)]", "expected a whole number (at least 1), got 'x'"),
        (0.5, "Annotated[int, AtLeast(1)]", "expected a whole number (at least 1), got 0.5"),
        ([0], "list[Annotated[int, AtLeast(1)]]", "expected a list (each a whole number (at l"),
        (None, "Annotated[int, AtLeast(1)] | None", None),
        (1, "Annotated[int, AtLeast(1), 'a note']", None),
        (0, "Annotated[int, AtLeast(1)] | str | float", None),
        (0, "Annotated[Unknown, AtLeast(1)]", None),
    ):
        found = find_type_problem(from_plain(value), annotation)
        assert found is None if wrong is None else found is not None and found.startswith(wrong)


def test_an_unknown_type_is_called_a_value() -> None:
    assert describe_type(parse_type("")) == describe_type(parse_type("Foo | Bar")) == "a value"
