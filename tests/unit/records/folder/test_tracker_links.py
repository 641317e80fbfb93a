"""Addresses of other tools that show a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from epochal.records.folder.tracker_links import read_tracker_urls, write_tracker_url

if TYPE_CHECKING:
    from pathlib import Path


def test_addresses_are_kept_without_logins(tmp_path: Path) -> None:
    write_tracker_url(tmp_path, "wandb", "https://wandb.ai/me/shop/runs/1")
    write_tracker_url(tmp_path, "mlflow", "http://ann:secret@host:5000/#/experiments/1/runs/2")
    assert read_tracker_urls(tmp_path) == {
        "wandb": "https://wandb.ai/me/shop/runs/1",
        "mlflow": "http://host:5000/#/experiments/1/runs/2",
    }


def test_only_pages_in_the_web_are_addresses(tmp_path: Path) -> None:
    for url in (None, "", "sqlite:///x.db/#/experiments/1", "file:///x", "/runs/x", "mlruns"):
        write_tracker_url(tmp_path, "mlflow", url)
    assert not (tmp_path / "mlflow").exists()
    (tmp_path / "wandb").mkdir()
    for value in (
        {"url": "javascript:alert(1)"},
        {"url": "https://x/<script>"},
        {"url": "https://a@evil/"},
        {"url": "https://x\n"},
        {"url": 3},
        [],
    ):
        (tmp_path / "wandb" / "url.json").write_text(json.dumps(value))
        assert read_tracker_urls(tmp_path) == {}, value
    (tmp_path / "wandb" / "url.json").write_text("{")
    assert read_tracker_urls(tmp_path) == {}
