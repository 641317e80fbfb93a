"""What a notebook shows while a run is running."""

from __future__ import annotations

import io
import logging
import re
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console as Screen

from epochal.engine.interfaces.hook import Hook
from epochal.engine.runner import Test as Evaluate
from epochal.hooks.console import Console
from epochal.testing import InjectedError, TinyTask, execute_run, short_options, tiny_run

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun


class Cell:
    """The output of a notebook cell, with the functions of IPython that are used."""

    def __init__(self) -> None:
        self.outputs = 0
        self.frames: list[str] = []

    def display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> Cell:
        assert raw
        assert display_id
        self.outputs += 1
        self.frames.append(bundle["text/html"])
        return self

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.frames.append(bundle["text/html"])

    @property
    def text(self) -> str:
        """The last frame without tags; ``#`` is a bar."""
        html = re.sub(r"<progress[^>]*>", "#", self.frames[-1])
        return re.sub(r"<[^>]+>", "", html)


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    cell, module = Cell(), ModuleType("IPython.display")
    vars(module)["display"] = cell.display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return cell


def show(*hooks: Hook, runner: Any = None, **options: Any) -> str:
    """Runs like a notebook cell; gives the text below the display."""
    console = Console(every=options.pop("every", "3st"))
    text = io.StringIO()
    console.screen = Screen(file=text, force_jupyter=True, force_terminal=False)
    options = short_options(sanity_batches=0, for_="2ep", **options)
    run = tiny_run(console, *hooks, task=TinyTask(), monitor="+val/acc", options=options)
    execute_run(run, runner)
    return text.getvalue()


def test_a_run_is_one_output_and_no_lines(cell: Cell) -> None:
    assert show() == ""
    assert cell.outputs == 1
    figure = r"\d[\d.:e-]*"
    bar, train, val = cell.text.splitlines()[1:]
    assert re.fullmatch(
        rf"Epoch 2/2  #  6/6  loss {figure}  acc {figure}  lr {figure}  .* sa/s  0:00:\d\d", bar
    )
    assert re.fullmatch(rf"train  loss {figure}  acc {figure}  {figure} m?s  ", train)
    assert re.fullmatch(rf"val    acc {figure}  {figure} m?s  (★ best|\(best .*\))", val)


def test_an_evaluation_alone_has_its_own_bar(cell: Cell) -> None:
    show(runner=Evaluate(split="val"))
    assert "Epoch" not in cell.frames[0]
    assert "<b>val</b>  <progress" in cell.frames[0]
    assert [line.split()[0] for line in cell.text.splitlines()[1:]] == ["val"]


def test_warnings_and_lines_of_the_user_are_shown(cell: Cell) -> None:
    class Talking(Hook):
        def run_start(self, run: EngineRun) -> None:
            logging.getLogger("epochal.x").info("ours")
            logging.getLogger("epochal.x").warning("careful")
            logging.getLogger("shop").warning("theirs")

    lines = show(Talking()).splitlines()
    assert [line[20:] for line in lines] == ["warning: careful", "warning shop: theirs"]


def test_handlers_show_everything_again_after_the_run(
    cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = logging.StreamHandler(sys.stdout)
    logger = logging.getLogger()
    logger.addHandler(handler)
    try:
        show()
        logging.getLogger("epochal.x").warning("later")
        assert capsys.readouterr().out == "later\n"
        assert not handler.filters
    finally:
        logger.removeHandler(handler)


def test_without_a_bar_there_are_lines(cell: Cell) -> None:
    assert "Epoch [1/2]  train" in show(every=0)
    assert cell.outputs == 0


def test_the_display_ends_with_a_failed_run(cell: Cell) -> None:
    class Failing(Hook):
        def step_end(self, run: EngineRun) -> None:
            raise InjectedError

    with pytest.raises(InjectedError):
        show(Failing())
    shown = len(cell.frames)
    assert "#" in cell.text
    assert "left" not in cell.text
    assert len(cell.frames) == shown


def test_names_cannot_break_the_html(cell: Cell) -> None:
    class Odd(Hook):
        def setup(self, run: EngineRun) -> None:
            run.tag = "<script>"

    show(Odd())
    assert "<script>" not in cell.frames[-1]
    assert "&lt;script&gt;" in cell.frames[-1]
