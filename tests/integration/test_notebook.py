"""A notebook with a run, its result and the list of runs, executed by Jupyter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

CELLS = (
    "import epochal as ep\nresult = ep.Experiment('config.yaml', choices={'device': 'cpu'}).fit()",
    "result",
    "ep.runs()",
)


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # those of Jupyter are not ours
def test_a_notebook_shows_one_live_output_the_result_and_the_runs(shop: Path) -> None:
    pytest.importorskip("ipykernel")
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    client.NotebookClient(book, resources={"metadata": {"path": str(shop)}}).execute()
    fit, result, runs = ([*cell.outputs] for cell in book.cells)
    live, *lines = fit
    assert "<progress" in live.data["text/html"]
    assert "<b>Epoch 2/2</b>" in live.data["text/html"]
    text = "".join(line.text for line in lines)
    assert text.startswith("finished (max_epochs): 2 epochs")
    assert len(text.splitlines()) < 8
    assert "<svg" in result[0].data["text/html"]
    assert result[0].data["text/plain"].startswith("RunResult(status='finished'")
    assert "/README.md" in runs[0].data["text/html"]
