from __future__ import annotations

import re

import pytest

from epochal.check import SECTIONS, check, yaml_template
from epochal.config import load
from epochal.errors import UnknownComponentError
from epochal.registry import Project, Registry


def uncommented(text: str) -> str:
    """The options that a template shows only in comments, switched on."""
    shown = [line for line in text.splitlines() if not re.match(r"#   type: \S+  ", line)]
    lines = [re.sub(r"^# ", "", line) for line in shown]
    return "\n".join(line for line in lines if re.match(r"^\s*(- )?[\w\"$]+:(\s|$)", line))


def test_a_component_shows_every_option_with_its_documentation() -> None:
    lines = yaml_template("EarlyStopping").splitlines()
    assert lines[0].startswith("# epochal.hooks.early_stopping.EarlyStopping: ")
    assert "type: EarlyStopping" in lines
    assert "patience:  # required: a whole number (at least 1)" in lines
    assert any(line.startswith("# Evaluations without improvement") for line in lines)
    assert "min_delta: 0.0" in lines


def test_a_template_of_options_is_a_valid_config(tmp_path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("".join(yaml_template(name) for name in ("train", "log", "engine", "record")))
    config = load(file)
    report = check(config, runner="test")
    assert config.problems == ()
    assert [item.key for item in report.problems] == ["model", "task"]


def test_every_section_has_a_template_that_can_be_read(tmp_path) -> None:
    for name in list(SECTIONS):
        text = yaml_template(name)
        assert text.startswith("# "), name
        file = tmp_path / "a.yaml"
        file.write_text(uncommented(text))
        config = load(file)
        assert config.problems == (), name
        assert list(config.root.mapping) == [name]


def test_a_kind_lists_the_known_names() -> None:
    text = yaml_template("optimizer")
    assert "#   type: AdamW  Implements AdamW" in text
    assert text == yaml_template("optim")


def test_without_a_name_the_whole_config_is_shown() -> None:
    text = yaml_template()
    assert all(re.search(rf"^(# )?{name}:", text, re.M) for name in SECTIONS)


def test_a_class_of_the_user_has_a_template(write_files) -> None:
    text = 'class Net:\n    """A net."""\n    def __init__(self, a: int, b=make(), **more): ...'
    registry = Registry(Project(write_files({"m.py": text})))
    assert yaml_template("m.Net", registry).splitlines() == [
        "# m.Net: A net.",
        "type: m.Net",
        "a:  # required: a whole number",
        "# b: make()",
        "# and any other argument",
    ]


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(UnknownComponentError, match="unknown component 'Adamm'"):
        yaml_template("Adamm")
