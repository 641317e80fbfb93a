"""Tests of ``epochal schema``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from epochal.config import load

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

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
