from __future__ import annotations

from pathlib import Path

import pytest

from epochal.config.problems import Findings
from epochal.config.source_file import read_document, read_source
from epochal.errors import ConfigError


def test_every_format_gives_the_same_tree(write) -> None:
    for name, text in (
        ("a.yaml", "model: {NAME: M, width: 3}"),
        ("a.YML", "model:\n  NAME: M\n  width: 3\n"),
        ("a.toml", "[model]\nNAME = 'M'\nwidth = 3"),
        ("a.json", '{"model": {"NAME": "M", "width": 3}}'),
        ("a.py", "config = {'model': {'NAME': 'M', 'width': 3}}"),
    ):
        findings = Findings()
        source = read_source(write(name, text))
        node = read_document(source, findings, layer="base", allow_python=True)
        assert node.to_plain() == {"model": {"type": "M", "width": 3}}, name
        assert {leaf.layer for _, leaf in node.iter_leaves()} == {"base"}, name
        assert not findings.problems, name


def test_python_is_not_run_unless_allowed(write) -> None:
    findings = Findings()
    path = write("a.py", "open('ran', 'w').close()\nconfig = {}")
    assert read_document(read_source(path), findings, layer="file").to_plain() == {}
    assert "add --allow-python" in findings.problems[0].hint
    assert findings.broken == {""}
    assert not Path("ran").exists()


def test_the_top_level_must_be_a_mapping(write) -> None:
    for name, text, what, hint in (
        ("a.yaml", "- a\n- b", "must be a mapping, got a list", "`key: value`"),
        ("a.yaml", "hello", "must be a mapping, got 'hello'", "`key: value`"),
        ("a.yaml", "lr:3", "must be a mapping, got 'lr:3'", "space after the colon"),
        ("a.json", "[1]", "must be a mapping, got a list", '{"key": value}'),
        ("a.json", "3", "must be a mapping, got 3", "`key: value`"),
    ):
        findings = Findings()
        node = read_document(read_source(write(name, text)), findings, layer="file")
        assert node.to_plain() == {}, name
        (problem,) = findings.problems
        assert what in problem.what, name
        assert hint in problem.hint, name
        assert str(problem.place) == f"{name}:1:1"
        assert findings.broken == {""}, name


def test_a_file_without_values_is_refused_or_reported(write) -> None:
    for text in ("# only\n# comments\n", "---\n", "null\n"):
        findings = Findings()
        source = read_source(write("a.yaml", text))
        if text.startswith("#"):
            with pytest.raises(ConfigError, match="is empty"):
                read_document(source, findings, layer="file")
        else:
            read_document(source, findings, layer="file")
            assert "must be a mapping, got null" in findings.problems[0].what, text


def test_a_toml_file_of_comments_is_refused_too(write) -> None:
    findings = Findings()
    source = read_source(write("a.toml", "# nothing\n"))
    with pytest.raises(ConfigError, match="is empty"):
        read_document(source, findings, layer="file")
