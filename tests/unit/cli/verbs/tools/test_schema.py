"""Tests of ``epochal schema``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import yaml_server
from epochal.config import load

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command


def test_whole_schema_is_json_schema_for_editors(shop: Path, epochal: Command) -> None:
    done = epochal("schema")
    assert done.code == 0
    schema = json.loads(done.out)
    assert "draft-07" in schema["$schema"]
    assert {"task", "model", "optim", "train"} <= schema["properties"].keys()


def test_template_of_a_name_is_loadable_yaml(shop: Path, epochal: Command) -> None:
    for name in ["EarlyStopping", "AdamW", "cosine", "train", "shop.parts.Net"]:
        done = epochal("schema", name, "--template")
        assert done.code == 0, done.err
        (shop / "template.yaml").write_text(done.out)
        assert not load(shop / "template.yaml").problems, name
        assert "#" in done.out, name


def test_template_of_everything_is_loadable_yaml(shop: Path, epochal: Command) -> None:
    (shop / "template.yaml").write_text(epochal("schema", "--template").out)
    config = load(shop / "template.yaml")
    assert not config.problems
    assert config.root.to_plain()["seed"] == 0


def test_own_components_have_their_documentation(shop: Path, epochal: Command) -> None:
    out = epochal("schema", "shop.parts.Net", "--template").out
    assert "Share of inputs silenced." in out
    assert "dropout: 0.1" in out
    json.loads(epochal("schema", "shop.parts.Net").out)


def test_unknown_name_suggests_the_closest_one(shop: Path, epochal: Command) -> None:
    done = epochal("schema", "EarlyStoping", "--template")
    assert done.code == 78
    assert "did you mean 'EarlyStopping'?" in done.err


def test_code_may_be_in_another_folder(
    shop: Path, epochal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert epochal("schema", "shop.parts.Net", "--template").code == 78
    assert epochal("schema", "shop.parts.Net", "--template", "--user-dir", shop).code == 0


LINE = "# yaml-language-server: $schema="


def test_install_writes_the_schema_and_the_line_of_the_editor(shop: Path, epochal: Command) -> None:
    (shop / "more").mkdir()
    (shop / "more/other.yml").write_bytes(b"\xef\xbb\xbfmodel: a.B\r\ntask: a.C\r\n")
    (shop / "compose.yaml").write_text("services: {}\nmodel: x\n")
    (shop / "runs/shop/20260101-000000-abcd").mkdir(parents=True)
    (shop / "runs/shop/20260101-000000-abcd/config.yaml").write_text("model: a.B\n")
    before = (shop / "config.yaml").read_text()
    (shop / "config.yaml").chmod(0o640)
    done = epochal("schema", "--install")
    assert done.code == 0, done.err
    assert ".epochal-schema.json: written" in done.out
    schema = json.loads((shop / ".epochal-schema.json").read_text())
    assert (
        "shop.parts.Net"
        in schema["definitions"]["model"]["else"]["properties"]["type"]["anyOf"][0]["enum"]
    )
    assert (shop / "config.yaml").read_text() == f"{LINE}.epochal-schema.json\n{before}"
    assert (shop / "config.yaml").stat().st_mode & 0o777 == 0o640
    other = (shop / "more/other.yml").read_bytes()
    line = f"{LINE}../.epochal-schema.json".encode()
    assert other == b"\xef\xbb\xbf" + line + b"\r\nmodel: a.B\r\ntask: a.C\r\n"
    assert LINE not in (shop / "compose.yaml").read_text()
    assert LINE not in (shop / "runs/shop/20260101-000000-abcd/config.yaml").read_text()
    again = epochal("schema", "--install", "config.yaml")
    assert ".epochal-schema.json: updated\nconfig.yaml: has the line already\n" in again.out


def test_install_refuses_what_it_cannot_do(shop: Path, epochal: Command) -> None:
    (shop / "config.toml").write_text("")
    for words, wanted in (
        (["--install", "lost.yaml"], "lost.yaml: no such file"),
        (["--install", "config.toml"], "config.toml: not a YAML file"),
        (["AdamW", "--install"], "--install writes the schema of whole configs"),
    ):
        done = epochal("schema", *words)
        assert (done.code, wanted in done.err) == (78, True), (words, done.err)
    assert not (shop / ".epochal-schema.json").exists()


@pytest.mark.skipif(yaml_server.COMMAND is None, reason="needs yaml-language-server (npm)")
def test_an_editor_completes_explains_and_marks_arguments_of_own_classes(
    shop: Path, epochal: Command
) -> None:
    assert epochal("schema", "--install").code == 0
    head = f"{LINE}.epochal-schema.json\n"
    net = f"{head}model:\n  type: shop.parts.Net\n  "
    with yaml_server.YamlServer(shop) as server:
        types = server.completions(f"{head}model:\n  type: |")
        assert types["shop.parts.Net"]["documentation"] == "One layer."
        assert not {"shop.parts.Points", "shop.parts.Leaving"} & types.keys()
        offered = server.completions(f"{net}|")
        assert offered["dropout"]["insertText"].startswith("dropout: ")
        assert not {"bias", "width", "num_samples"} & offered.keys()
        assert "Share of inputs silenced." in server.hover(f"{net}drop|out: 0.1\n")
        (mark,) = server.mistakes(f"{net}drpout: 0.1\n")
        assert mark["message"] == "Property drpout is not allowed."
        assert mark["range"]["start"] == {"line": 3, "character": 2}
        assert server.mistakes(f"{net}dropout: 0.1\n") == []
        # cosine is a prefix of cosineannealinglr
        cosine = server.completions(f"{head}schedule:\n  type: cosine\n  |")
        assert "restarts" in cosine
        assert "T_max" not in cosine
        early = server.completions(f"{head}hooks:\n  - |")
        assert "type" in early
        assert "patience" not in early
