from __future__ import annotations

from epochal.config import load

TEXT = """\
model: {type: M, width: 8}
hooks: [{type: H, patience: 1}]
variants:
  wide: {model.width: 1024, hooks.0.patience: 5}
  deep:
    model: {depth: 9}
  other: {model.NAME: N, optim: {class_path: O, init_args: {lr: 1}}}
"""


def test_without_a_name_no_variant_is_applied(write) -> None:
    config = load(write("c.yaml", TEXT))
    assert config.root.to_plain() == {
        "model": {"type": "M", "width": 8},
        "hooks": [{"type": "H", "patience": 1}],
    }
    assert list(config.variants) == ["wide", "deep", "other"]


def test_dotted_keys_lead_to_deeper_values(write) -> None:
    config = load(write("c.yaml", TEXT), variant="wide")
    width = config.root.find("model.width")
    assert config.variant == "wide"
    assert config.root.to_plain()["hooks"] == [{"type": "H", "patience": 5}]
    assert (width.value, width.layer, str(width.place)) == (1024, "variant", "c.yaml:4:23")
    assert (width.replaced.value, width.replaced.layer) == (8, "file")


def test_nested_mappings_merge(write) -> None:
    config = load(write("c.yaml", TEXT), variant="deep")
    assert config.root.to_plain()["model"] == {"type": "M", "width": 8, "depth": 9}


def test_type_aliases_are_read_in_variants(write) -> None:
    root = load(write("c.yaml", TEXT), variant="other").root.to_plain()
    assert root["model"]["type"] == "N"
    assert root["optim"] == {"type": "O", "lr": 1}


def test_variants_are_inherited_and_merged(write) -> None:
    write("base.yaml", "variants: {a: {x: 1, y: 1}, b: {x: 2}}")
    path = write("c.yaml", "$BASE: base.yaml\nvariants: {a: {y: 3}}")
    assert load(path, variant="a").root.to_plain() == {"x": 1, "y": 3}
    assert list(load(path).variants) == ["a", "b"]


def test_a_variant_may_have_a_base(write) -> None:
    write("wide.yaml", "model: {width: 9}")
    path = write("c.yaml", "model: {width: 1}\nvariants: {wide: {$BASE: wide.yaml}}")
    config = load(path, variant="wide")
    width = config.root.find("model.width")
    assert (width.value, width.layer) == (9, "variant")


def test_an_unknown_variant_is_reported_with_the_nearest_name(write) -> None:
    config = load(write("c.yaml", TEXT), variant="wid")
    (problem,) = config.problems
    assert str(problem) == "variants: there is no variant 'wid'\n  did you mean 'wide'?"


def test_a_file_without_variants_says_so(write) -> None:
    (problem,) = load(write("c.yaml", "a: 1"), variant="wide").problems
    assert problem.hint == "the file has no variants"


def test_a_variant_that_a_missing_base_may_define_is_not_reported(write) -> None:
    config = load(write("c.yaml", "$BASE: nope.yaml"), variant="wide")
    assert [problem.key for problem in config.problems] == ["$BASE"]


def test_variants_of_the_wrong_shape_are_reported(write) -> None:
    for variants, key, what in (
        ("3", "variants", "expected a mapping, got 3"),
        ("[a]", "variants", "expected a mapping, got a list"),
        ("{a: 3}", "variants.a", "expected a mapping, got 3"),
        ("{a: [1]}", "variants.a", "expected a mapping, got a list"),
    ):
        (problem,) = load(write("c.yaml", f"variants: {variants}")).problems
        assert (problem.key, problem.what) == (key, what), variants


def test_a_variant_through_a_scalar_is_reported(write) -> None:
    path = write("c.yaml", "tag: x\nvariants: {a: {tag.deep: 1}}")
    (problem,) = load(path, variant="a").problems
    assert problem.key == "variants.a.tag.deep"
    assert "tag is 'x' and has no key 'deep'" in problem.what
    assert str(problem.place) == "c.yaml:2:16"
