"""Tests of runs as a DataFrame."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import epochal as ep
from epochal.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

pd = pytest.importorskip("pandas")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two folders that look like runs."""
    for name, lr in (("20261114-100000-aaaa", "0.1"), ("20261115-100000-bbbb", "1e-3")):
        folder = tmp_path / "store" / "shop" / name
        (folder / "config").mkdir(parents=True)
        (folder / "run.json").write_text('{"project": "store", "tag": "shop", "seed": 3}')
        started = f"{name[:4]}-{name[4:6]}-{name[6:8]}T10:00:00.000+00:00"
        (folder / "status.json").write_text(
            f'{{"status": "finished", "started": "{started}", "ended": "{started}", "step": 5}}'
        )
        (folder / "result.json").write_text('{"best": 0.5, "metrics": {}}')
        (folder / "config" / "provenance.json").write_text(
            f'{{"optim.lr": [{{"value": {lr}, "layer": "file"}}], "same": [{{"value": 1}}]}}'
        )
    return tmp_path


def test_runs_are_a_frame(root: Path) -> None:
    frame = ep.runs(root=root)
    assert frame["run"].tolist() == ["20261114-100000-aaaa", "20261115-100000-bbbb"]
    assert frame["optim.lr"].tolist() == [0.1, 1e-3]
    assert frame["started"].dt.day.tolist() == [14, 15]
    assert frame["best"].mean() == 0.5
    assert "same" not in frame


def test_runs_can_be_asked_for(root: Path) -> None:
    frame = ep.runs("optim.lr > 0.01", root=root, columns=["run", "optim.lr", "same"])
    assert frame.to_dict("list") == {
        "run": ["20261114-100000-aaaa"],
        "optim.lr": [0.1],
        "same": [1],
    }
    assert len(ep.runs(root=root, search="shop", sort="optim.lr desc", limit=1)) == 1
    assert len(ep.runs(root=root / "store")) == 2


def test_no_runs_are_an_empty_frame(tmp_path: Path) -> None:
    assert ep.runs(root=tmp_path / "nothing").empty
    assert not (tmp_path / "nothing").exists()


def test_mistakes_are_pointed_at(root: Path) -> None:
    with pytest.raises(ConfigError, match="where: unknown name 'lr'"):
        ep.runs("lr > 1", root=root)


def test_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"pip install 'epochal\[frame\]'"):
        ep.runs()
