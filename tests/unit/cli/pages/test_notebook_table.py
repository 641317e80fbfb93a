"""Tests of ``ep.runs``."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

import epochal as ep
from epochal.cli import main
from epochal.errors import ConfigError
from indexed import record_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two runs."""
    record_run(tmp_path, lr=0.1, accuracy=0.5)
    record_run(tmp_path, lr=1e-3, accuracy=0.75, tag="<wide>")
    return tmp_path


def test_items_are_the_records_of_runs(root: Path) -> None:
    table = ep.runs(root=root)
    assert len(table) == 2
    assert [record.summary.tag for record in table] == ["shop", "<wide>"]
    assert table[-1].last("val/acc").value == 0.75
    assert [record.path for record in table[:1]] == [table.paths[0]]


def test_it_prints_like_the_command(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, options in (
        ([], {}),
        (["--where", "optim.lr > 0.01"], {"where": "optim.lr > 0.01"}),
        (["--sort", "-val/acc", "--limit", "1"], {"sort": "-val/acc", "limit": 1}),
        (["--search", "shop"], {"search": "shop"}),
        (["--columns", "seed, optim.lr"], {"columns": ["seed", "optim.lr"]}),
    ):
        main(["runs", "--runs-dir", str(root), *words])
        table, _, hint = capsys.readouterr().out.partition("\n\n")
        assert table == repr(ep.runs(root=root, **options)), words  # type: ignore[arg-type]
        assert "shows one of them" in hint
    main(["runs", "--runs-dir", str(root), "--where", "optim.lr > 7"])
    assert capsys.readouterr().out == f"{ep.runs('optim.lr > 7', root=root)!r}\n"


def test_chosen_columns_stay_on_a_narrow_terminal(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epochal.cli.pages.run_table.terminal_width", lambda: 12)
    assert "best" in repr(ep.runs(root=root, columns="best"))


def test_html_has_links_to_the_runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    table = ep.runs(root=root)
    html = table._repr_html_()
    assert re.findall(r'href="([^"]+)"', html) == [
        f"store/shop/{table[0].path.name}/README.md",
        f"store/wide/{table[1].path.name}/README.md",
    ]
    assert "&lt;wide&gt;" in html
    assert "<wide>" not in html
    assert re.search(r">val/acc 0.75</td></tr></table>$", html)


def test_no_runs_say_so(tmp_path: Path) -> None:
    nothing = ep.runs(root=tmp_path / "nothing")
    assert not nothing
    assert repr(nothing).startswith(f"no runs below {tmp_path / 'nothing'}; `")
    assert "no runs below" in nothing._repr_html_()
    assert nothing.rows == []
    assert not (tmp_path / "nothing").exists()


def test_rows_have_facts_settings_that_differ_and_metrics(root: Path) -> None:
    first, second = ep.runs(root=root).rows
    assert (first["optim.lr"], second["optim.lr"]) == (0.1, 1e-3)
    assert second["val/acc"] == second["best"] == 0.75
    assert "optim.type" not in first
    (only,) = ep.runs("optim.lr > 0.01", root=root, columns="seed, optim.type").rows
    assert only == {"seed": 0, "optim.type": "SGD"}
    assert len(ep.runs(root=root / "store")) == 2


def test_runs_as_a_dataframe(root: Path) -> None:
    pytest.importorskip("pandas")
    frame = ep.runs(root=root).to_pandas()
    assert frame["optim.lr"].tolist() == [0.1, 1e-3]
    assert frame["started"].dt.year.min() >= 2026
    assert frame["best"].mean() == 0.625
    assert ep.runs(root=root / "nothing").to_pandas().empty


def test_without_pandas_says_what_to_install(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"pip install 'epochal\[frame\]'"):
        ep.runs(root=root).to_pandas()


def test_an_invalid_query_is_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match="where: unknown name 'lr'"):
        ep.runs("lr > 1", root=root)
