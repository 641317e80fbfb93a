"""TensorBoard: event files that say what the record says, once."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from epochal.engine.hook import Hook
from epochal.engine.mirror import Entry
from epochal.engine.tracker import Source
from epochal.hooks.tensorboard import Additions, TensorBoard
from epochal.testing import carry_out, tiny_run
from tracked import Series, carry_out_tracked, events, only, recorded

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine.run import Run


def narrow(series: Series) -> Series:
    """Values as TensorBoard keeps them."""
    return {
        name: {step: float(np.float32(value)) for step, value in points.items()}
        for name, points in series.items()
    }


def test_event_files_hold_what_the_record_holds(tmp_path: Path) -> None:
    folder, result = carry_out_tracked(tmp_path, TensorBoard(every="4st"))
    assert result.ok, result.message
    shown, record = events(folder / "tensorboard"), recorded(folder)
    assert set(shown) == set(record)
    rare = ("train/loss", "train/acc", "lr")
    assert only(shown, *rare) == narrow(only(record, *rare, steps={4, 8, 12}))
    often = set(record) - set(rare)
    assert only(shown, *often) == narrow(only(record, *often))


def test_a_sink_that_is_opened_again_begins_anew(tmp_path: Path) -> None:
    source = Source(tmp_path, "tiny", "", "")
    for value in (1.0, 2.0):
        sink = TensorBoard().open(source)
        sink.write([Entry(5, 0.0, {"a": value})])
        sink.close(has_failed=False)
    assert events(tmp_path / "tensorboard") == {"a": {5: 2.0}}


def test_values_that_are_not_finite_are_shown(tmp_path: Path) -> None:
    sink = TensorBoard().open(Source(tmp_path, "tiny", "", ""))
    sink.write([Entry(5, 0.0, {"a": float("inf")}), Entry(6, 0.0, {"a": float("nan")})])
    sink.close(has_failed=False)
    found = events(tmp_path / "tensorboard")["a"]
    assert found[5] == float("inf")
    assert np.isnan(found[6])


class Draws(Hook):
    """Adds something of its own."""

    def step_end(self, run: Run) -> None:
        run.store.get("summary_writer").add_scalar("own", run.step / 4, run.step)


def test_users_get_a_writer_of_torch_under_a_known_name(tmp_path: Path) -> None:
    before = threading.active_count()
    folder, result = carry_out_tracked(tmp_path, TensorBoard(), Draws())
    assert result.ok, result.message
    assert threading.active_count() == before, "the writer was not closed"
    own = events(folder / "tensorboard" / "added")
    assert own == {"own": {step: step / 4 for step in range(1, 13)}}
    assert "own" not in events(folder / "tensorboard")


def test_that_writer_writes_nowhere_without_a_record() -> None:
    carry_out(tiny_run(TensorBoard(), Draws()))


def test_nothing_of_it_is_made_before_it_is_used(tmp_path: Path) -> None:
    additions = Additions(tmp_path / "added")
    assert not hasattr(additions, "state_dict")
    additions.finish()
    assert not (tmp_path / "added").exists()


def test_what_is_done_again_replaces_what_was_added_before(tmp_path: Path) -> None:
    for purge_step, value in ((None, 1.0), (2, 2.0)):
        additions = Additions(tmp_path, purge_step=purge_step)
        for step in range(purge_step or 1, 4):
            additions.add_scalar("own", value, step)
        additions.finish()
    assert events(tmp_path) == {"own": {1: 1.0, 2: 2.0, 3: 2.0}}


@pytest.mark.parametrize(
    ("folder", "text"),
    [(None, "`tensorboard --logdir tensorboard`"), ("x", "`tensorboard --logdir x/tensorboard`")],
)
def test_it_says_how_to_look_at_it(folder: str | None, text: str, tmp_path: Path) -> None:
    from pathlib import Path

    assert TensorBoard().describe(None if folder is None else Path(folder)) == text


def test_the_package_is_not_imported_before_there_is_something_to_write() -> None:
    code = (
        "import sys\n"
        "from epochal.hooks.tensorboard import TensorBoard\n"
        "from epochal.testing import carry_out, tiny_run\n"
        "carry_out(tiny_run(TensorBoard()))\n"
        "assert 'tensorboard' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
