from __future__ import annotations

from epochal.check.signatures.parameters import Parameter, Signature
from epochal.check.values.checker import ConfigChecker
from epochal.check.values.unknown_keys import suggest_known
from epochal.config import from_plain
from epochal.config.node import NOWHERE
from epochal.errors import Place
from epochal.registry import Project, Registry


def problems_of(checker: ConfigChecker) -> list[tuple[str, str, str]]:
    return [(item.key, item.what, item.hint) for item in checker.problems]


def test_a_spec_is_expanded_with_every_literal_default(checker: ConfigChecker) -> None:
    found = checker.spec("model", from_plain({"type": "user.model.Mlp", "classes": 3}), "model")
    assert found.to_plain() == {"type": "user.model.Mlp", "classes": 3, "width": 64, "act": None}
    assert found.mapping["width"].layer == "default"
    assert found.mapping["width"].place.name.endswith("model.py")
    assert [(item.key, item.value) for item in checker.defaults] == [
        ("model.width", 64),
        ("model.act", None),
    ]


def test_a_misspelt_argument_is_reported_once_with_its_owner(
    checker: ConfigChecker,
) -> None:
    checker.spec("model", from_plain({"type": "user.model.Mlp", "clases": 3}), "model")
    assert problems_of(checker) == [
        ("model.clases", "unknown argument 'clases' of user.model.Mlp", "did you mean 'classes'?")
    ]


def test_an_unknown_argument_lists_the_known_ones(checker: ConfigChecker) -> None:
    checker.spec("model", from_plain({"type": "user.model.Mlp", "classes": 1, "zzz": 3}), "model")
    assert problems_of(checker)[0][2] == "known: act, classes, width"


def test_a_missing_argument_says_what_to_add(checker: ConfigChecker) -> None:
    checker.spec("model", from_plain({"type": "user.model.Mlp"}), "model")
    assert problems_of(checker) == [
        ("model.classes", "missing; user.model.Mlp requires it", "add classes: <a whole number>")
    ]


def test_a_missing_argument_of_unknown_type_has_no_example(write_files) -> None:
    folder = write_files({"m.py": "class A:\n    def __init__(self, block, norm: Foo | Bar): ..."})
    checker = ConfigChecker(Registry(Project(folder)))
    checker.spec("model", from_plain({"type": "m.A"}), "model")
    assert [hint for _, _, hint in problems_of(checker)] == ["add block: ...", "add norm: ..."]


def test_keys_that_an_unreadable_file_may_set_are_not_missing(checker: ConfigChecker) -> None:
    broken = ConfigChecker(checker.registry, frozenset({"model"}))
    broken.spec("model", from_plain({"type": "user.model.Mlp", "widht": 3}), "model")
    broken.spec("model", from_plain({"width": 3}), "model")
    assert [key for key, _, _ in problems_of(broken)] == ["model.widht"]


def test_specs_inside_arguments_are_checked_at_any_depth(checker: ConfigChecker) -> None:
    inner = {"type": "torch.nn.Linear", "in_feature": 3, "out_features": 2}
    node = from_plain({"type": "user.model.Mlp", "classes": 3, "act": inner})
    found = checker.spec("model", node, "model")
    assert problems_of(checker) == [
        (
            "model.act.in_feature",
            "unknown argument 'in_feature' of torch.nn.modules.linear.Linear",
            "did you mean 'in_features'?",
        )
    ]
    assert found.to_plain()["act"]["bias"] is True


def test_a_list_of_specs_in_an_open_argument_is_checked(checker: ConfigChecker) -> None:
    value = from_plain({"layers": [{"type": "torch.nn.ReLu"}]})
    checker.nested("task.options", value)
    assert problems_of(checker)[0][0] == "task.options.layers.0.type"


def test_null_is_accepted_if_it_is_the_default(checker: ConfigChecker) -> None:
    parameter = Parameter("size", "int", None)
    checker.value("a.size", from_plain(None), parameter, "A")
    assert problems_of(checker) == []


def test_a_function_given_by_name_must_exist(checker: ConfigChecker) -> None:
    parameter = Parameter("collate", "Callable[[list], Any] | None", None)
    checker.value("data.train.collate", from_plain("user.task.colate"), parameter, "A")
    checker.value("data.train.collate", from_plain("user.task.Shapes"), parameter, "A")
    checker.value("data.train.collate", from_plain("os.system"), parameter, "A")
    assert [key for key, _, _ in problems_of(checker)] == ["data.train.collate"] * 2


def test_a_required_argument_that_a_section_key_hides_is_reported(checker: ConfigChecker) -> None:
    own = Signature("section 'x'", (Parameter("classes", "int", 1),))
    checker.spec("x", from_plain({"type": "user.model.Mlp", "classes": 2}), "model", own)
    (key, what, _) = problems_of(checker)[0]
    assert (key, what) == (
        "x.classes",
        "user.model.Mlp requires it, but it is a key of section 'x'",
    )


def test_messages_point_at_the_key_or_the_value(checker: ConfigChecker) -> None:
    place = Place("a.yaml", 3, 5, "  width: x", 1)
    node = from_plain({"type": "user.model.Mlp", "classes": 1, "width": "x"}, place=place)
    checker.spec("model", node, "model")
    assert checker.problems[0].place == place


def test_hints_list_a_dozen_names_at_most() -> None:
    assert suggest_known("x", []) == "it takes none"
    assert suggest_known("0", "abcdefghijklmnop").endswith("l, ...")


def test_arguments_before_positional_values_must_be_known(write_files) -> None:
    folder = write_files({"m.py": "class A:\n    def __init__(self, act=make(), *parts): ..."})
    checker = ConfigChecker(Registry(Project(folder)))
    checker.spec("model", from_plain({"type": "m.A", "parts": [1]}), "model")
    checker.spec("model", from_plain({"type": "m.A", "parts": []}), "model")
    checker.spec("model", from_plain({"type": "m.A"}), "model")
    assert problems_of(checker) == [
        ("model.act", "missing; it comes before *parts of m.A", "add act: ...")
    ]


def test_positional_values_are_not_listed_as_defaults(checker: ConfigChecker) -> None:
    found = checker.spec("model", from_plain({"type": "torch.nn.Sequential"}), "model")
    assert found.to_plain() == {"type": "torch.nn.Sequential"}
    assert checker.defaults == []


def test_keys_below_an_unreadable_file_are_unknown(user_registry) -> None:
    checker = ConfigChecker(user_registry, frozenset({"model", "a.b"}))
    paths = ("model", "model.width", "a.b.c", "models", "a")
    assert [path for path in paths if checker.is_broken(path)] == ["model", "model.width", "a.b.c"]
    assert ConfigChecker(user_registry, frozenset({""})).is_broken("anything")


def test_mistakes_know_the_keys_that_were_reported(user_registry) -> None:
    checker = ConfigChecker(user_registry, frozenset({"a"}), frozenset({"b.c"}))
    checker.report("monitor", "is wrong", None)
    paths = ("a", "b.c", "b", "a.x", "monitor", "mon")
    assert [path for path in paths if checker.is_known_bad(path)] == ["a", "b.c"]
    assert [path for path in paths if checker.has_any(path)] == ["b.c", "b", "monitor"]


def test_values_from_python_have_no_place(user_registry) -> None:
    checker = ConfigChecker(user_registry)
    checker.report("a", "wrong", NOWHERE)
    assert str(checker.problems[0]) == "a: wrong"
