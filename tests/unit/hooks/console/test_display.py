"""The display: what a terminal shows at one moment of a run."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console as Screen

from epochal.engine.hook import Hook
from epochal.hooks.console.display import Display
from epochal.hooks.console.lines import Reading
from epochal.hooks.console.track import Track
from epochal.testing import carry_out, short_options, tiny_run

if TYPE_CHECKING:
    from epochal.engine.run import Run


def make_screen() -> Screen:
    return Screen(file=io.StringIO(), width=80, force_terminal=True, color_system=None)


class Camera(Hook):
    """Takes a picture of the display at each step and each batch of an evaluation."""

    def __init__(self) -> None:
        self.pictures: list[list[str]] = []

    def run_start(self, run: Run) -> None:
        self._track = Track(run)
        self._display = Display(make_screen(), run, self._track)
        self._display.reading = Reading(values={"loss": 0.5}, lr=0.1)

    def epoch_start(self, run: Run, split: str) -> None:
        if split == "train":
            self._track.start_epoch()
        self._display.start(split)

    def loop_start(self, run: Run, split: str) -> None:
        if split != "train":
            self._track.start_loop(split)

    def batch_end(self, run: Run, split: str) -> None:  # type: ignore[override]  # by name
        screen = make_screen()
        screen.print(self._display.draw())
        self.pictures.append(screen.file.getvalue().splitlines())  # type: ignore[attr-defined]

    def run_end(self, run: Run) -> None:
        self._display.stop()
        self._display.stop()


def take_pictures(**options: object) -> list[list[str]]:
    camera = Camera()
    options = {"sanity_batches": 0, "for_": "1ep", "limit_batches": 2} | options
    carry_out(tiny_run(camera, options=short_options(**options)))
    return camera.pictures


def test_training_shows_the_epoch_alone() -> None:
    picture = take_pictures()[1]
    assert picture[0].startswith("Epoch 1/1 ")
    assert picture[1].strip() == "loss 0.5000  lr 1.0e-01"
    assert len(picture) == 2


def test_an_evaluation_adds_its_own_line_below() -> None:
    picture = take_pictures()[-1]
    assert picture[0].startswith("Epoch 1/1 ")
    assert picture[-1].strip().startswith("val ")
    assert picture[-1].rstrip().endswith("2/2")


def test_an_evaluation_before_training_stands_alone() -> None:
    first = take_pictures(eval_at_start=True)[0]
    assert len(first) == 1
    assert first[0].strip().startswith("val ")


def test_stopping_leaves_nothing_behind() -> None:
    screen = make_screen()
    run = tiny_run()
    display = Display(screen, run, Track(run))
    display.start("train")
    display.stop()
    drawn = screen.file.getvalue()  # type: ignore[attr-defined]
    assert drawn.startswith("\x1b[?25l")  # the cursor hides,
    assert "\x1b[?25h" in drawn  # comes back,
    assert drawn.endswith("\x1b[2K")  # and the line is erased


def test_stopping_before_the_start_is_fine() -> None:
    run = tiny_run()
    Display(make_screen(), run, Track(run)).stop()
