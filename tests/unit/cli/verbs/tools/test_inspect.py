"""Tests of ``epochal inspect data``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command


def test_inspect_describes_every_split_and_writes_a_page(shop: Path, epochal: Command) -> None:
    done = epochal("inspect", "data", "config.yaml", "--device", "cpu", "--show", "3")
    assert done.code == 0, done.err
    assert "train: 24 samples, 24 read" in done.out
    assert "val: 24 samples, 24 read" in done.out
    assert re.search(r"^  balance of \w+: \w+ \(\d+\), ", done.out, re.M)
    page = next((shop).glob("inspect-*/data.html"))
    assert f"page: {page.relative_to(shop)}" in done.out
    assert page.read_text().count("<figure>") == 3 * page.read_text().count("<h2>")
    assert not (shop / "runs").exists()


def test_inspect_as_json_has_the_facts(shop: Path, epochal: Command) -> None:
    words = ("--json", "--samples", "8", "--out", "facts", "--device", "cpu")
    done = epochal("inspect", "data", "config.yaml", *words)
    found = json.loads(done.out)
    assert found["page"] == "facts/data.html"
    assert found["splits"]["train"]["read"] == 8
    assert found["splits"]["train"]["samples"] == 24


def test_a_config_must_be_named(shop: Path, epochal: Command) -> None:
    done = epochal("inspect", "data")
    assert "no config file\n  name a file first: " in done.err
    assert " inspect data FILE key=value" in done.err


def test_only_data_can_be_inspected(shop: Path, epochal: Command) -> None:
    done = epochal("inspect", "weights", "config.yaml")
    assert done.code != 0
    assert "can inspect data, not 'weights'" in done.err


def test_what_was_found_is_printed_even_if_the_page_cannot_be_written(
    shop: Path, epochal: Command
) -> None:
    (shop / "facts").write_text("a file")
    done = epochal("inspect", "data", "config.yaml", "--out", "facts", "--device", "cpu")
    assert done.code == 74
    assert "train: 24 samples, 24 read" in done.out
    assert done.err.startswith("facts: file exists\n  check the permissions")
