"""The progress bars, rendered at the widths that terminals have."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console as Screen
from rich.text import Text

from epochal.engine.interfaces.hook import Hook
from epochal.hooks.console.progress_display import (
    ColumnWidths,
    ProgressDisplay,
    RunProgress,
    SummaryLine,
)
from epochal.testing import carry_out, short_options, tiny_run

if TYPE_CHECKING:
    from epochal.engine.run import Run

FEW = {"loss": "0.3412", "acc": "0.9012", "lr": "1.0e-03", "grad_norm": ""}
MANY = {
    "loss": "0.3400",
    "loss_box": "12.300",
    "loss_cls": "1.00e-07",
    "acc": "0.9000",
    "top5": "0.9900",
    "lr": "1.0e-03",
    "grad_norm": "1.2500",
}


@dataclass
class FixedProgress:
    """The progress of a run at one moment."""

    epoch_count: str = " 3/10"
    completed: int = 50
    total: int | None = 225
    rate: float = 12_345
    unit: str = "sa"
    elapsed_seconds: float = 62
    eta_seconds: float | None = 753

    def update_speed(self) -> None:
        pass


def make_screen(width: int = 80, encoding: str = "utf-8") -> Screen:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return Screen(file=file, width=width, force_terminal=True, color_system=None)


def read(screen: Screen) -> list[str]:
    screen.file.flush()
    data = screen.file.buffer.getvalue()  # type: ignore[attr-defined]
    return data.decode(screen.encoding).splitlines()


def make_display(width: int, progress: Any = None, *, encoding: str = "utf-8") -> ProgressDisplay:
    run = tiny_run()
    run.split = "train"
    display = ProgressDisplay(make_screen(width, encoding), run, progress or FixedProgress())
    display._is_training = True
    return display


def render(width: int, numbers: dict[str, str] = FEW, **options: Any) -> list[str]:
    display = make_display(width, **options)
    display.numbers = numbers
    display.console.print(display.get_renderable())
    return read(display.console)


def test_wide_terminal_shows_everything_in_one_line() -> None:
    (line,) = render(120)
    assert line.startswith("Epoch  3/10 ━━━━━━")
    assert line.endswith(
        "  50/225  loss 0.3412  acc 0.9012  lr 1.0e-03  12.3k sa/s  0:01:02  left 0:12:33"
    )
    assert len(line) == 120


def test_narrow_terminal_puts_the_numbers_on_a_second_line() -> None:
    first, second = render(80)
    assert first.endswith("50/225  12.3k sa/s  0:01:02  left 0:12:33")
    assert second.rstrip() == "  loss 0.3412  acc 0.9012  lr 1.0e-03"
    first, second = render(60, MANY)
    assert "50/225" in first
    assert second.startswith("  loss 0.3400  ")


def test_numbers_beyond_the_second_line_become_an_ellipsis() -> None:
    assert render(80, MANY)[1].rstrip().endswith("top5 0.9900  …")
    assert render(120, MANY)[1].rstrip().endswith("lr 1.0e-03  grad_norm 1.2500")
    assert render(60, MANY, encoding="ascii")[1].rstrip().endswith("...")


def test_no_line_is_wider_than_the_terminal_nor_wrapped() -> None:
    for width in (200, 120, 100, 80, 60, 40, 30):
        for numbers in (FEW, MANY, {}):
            lines = render(width, numbers)
            assert len(lines) <= 2, (width, numbers)
            assert all(len(line) <= width for line in lines), (width, numbers)
            assert "50/225" in lines[0], (width, numbers)


def test_tiny_terminal_drops_the_clocks_but_not_the_count() -> None:
    assert render(40)[0].rstrip().endswith("   50/225")


def test_bar_has_a_largest_width() -> None:
    (line,) = render(300, {}, progress=FixedProgress(completed=225))
    assert line.count("━") == 40


def test_line_keeps_its_layout_while_numbers_change() -> None:
    display, layouts = make_display(120), set()
    for index, loss, left in [(5, "123.40", 4000), (50, "0.3000", 800), (225, "12.000", 7)]:
        display._progress = FixedProgress(  # type: ignore[assignment]  # has what is read
            completed=index, rate=index * 100, elapsed_seconds=index, eta_seconds=left
        )
        display.numbers = {"loss": loss, "lr": "1.0e-03"}
        display.console.print(display.get_renderable())
        line = read(display.console)[-1]
        layouts.add((len(line), line.index("loss"), line.index("left")))
    assert len(layouts) == 1


def test_unknown_length_shows_what_is_known() -> None:
    progress = FixedProgress(epoch_count="3", total=None, eta_seconds=None)
    (line,) = render(80, {}, progress=progress)
    assert line.startswith("Epoch 3 ")
    assert "  50  " in line
    assert line.rstrip().endswith("left -:--:--")


def test_bar_grows_with_the_steps() -> None:
    def length(index: int) -> int:
        return render(80, {}, progress=FixedProgress(completed=index, total=8))[0].count("━")

    assert length(0) == 0 < length(4) < length(8)  # without colours the rest is blank


def test_summary_has_a_star_only_when_best() -> None:
    numbers = ColumnWidths().cells({"acc": "0.9000"})
    for best, ending in ((True, "  ★ best"), (False, "")):
        screen = make_screen()
        screen.print(SummaryLine("Epoch  3/10  val", numbers, "1.23 s", best=best))
        assert read(screen) == [f"Epoch  3/10  val  acc 0.9000  1.23 s{ending}"]
    screen = make_screen(encoding="ascii")
    screen.print(SummaryLine("val", [], "1.00 s", best=True))
    assert read(screen) == ["val  1.00 s  * best"]


def test_a_long_summary_breaks_between_numbers() -> None:
    numbers = [Text(f"loss_{name} 0.2500") for name in "abcdef"]
    for width in range(24, 120):
        screen = make_screen(width)
        screen.print(SummaryLine("Epoch 3", numbers, "1.23 s", best=True))
        lines = read(screen)
        assert all(len(line) <= width for line in lines)
        assert all(number.plain in "\n".join(lines) for number in numbers)
        assert any("1.23 s" in line for line in lines)
        assert [line.startswith("  ") for line in lines] == [False] + [True] * (len(lines) - 1)


def test_columns_only_grow() -> None:
    widths = ColumnWidths()
    padded = [widths.pad("loss", text) for text in ("1.5", "12.25", "3.5")]
    assert padded == ["1.5", "12.25", "  3.5"]


class Camera(Hook):
    """Renders the display after each batch of training and evaluation."""

    def __init__(self) -> None:
        self.pictures: list[list[str]] = []

    def run_start(self, run: Run) -> None:
        self._progress = RunProgress(run)
        self._display = ProgressDisplay(make_screen(), run, self._progress)
        self._display.numbers = {"loss": "0.5000", "lr": "1.0e-01"}

    def epoch_start(self, run: Run, split: str) -> None:
        if split == "train":
            self._progress.start_epoch()
        self._display.show(split)

    def loop_start(self, run: Run, split: str) -> None:
        if split != "train":
            self._progress.start_loader(split)

    def batch_end(self, run: Run, split: str) -> None:  # type: ignore[override]  # by name
        screen = make_screen()
        screen.print(self._display.get_renderable())
        self.pictures.append(read(screen))

    def run_end(self, run: Run) -> None:
        self._display.stop()
        self._display.stop()


def take_pictures(**options: object) -> list[list[str]]:
    camera = Camera()
    options = {"sanity_batches": 0, "for_": "1ep", "limit_batches": 2} | options
    carry_out(tiny_run(camera, options=short_options(**options)))
    return camera.pictures


def test_training_shows_the_epoch_alone() -> None:
    first, second = take_pictures()[1]
    assert first.startswith("Epoch 1/1 ")
    assert second.strip() == "loss 0.5000  lr 1.0e-01"


def test_an_evaluation_adds_a_bar_below() -> None:
    picture = take_pictures()[-1]
    assert picture[0].startswith("Epoch 1/1 ")
    assert picture[-1].startswith("  val ━━━")
    assert picture[-1].rstrip().endswith("2/2")


def test_an_evaluation_before_training_has_the_only_bar() -> None:
    (line,) = take_pictures(eval_at_start=True)[0]
    assert line.startswith("  val ")


def test_stopping_restores_the_terminal() -> None:
    run = tiny_run()
    display = ProgressDisplay(make_screen(), run, RunProgress(run))
    display.show("train")
    display.stop()
    display.console.file.flush()
    drawn = display.console.file.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert drawn.startswith("\x1b[?25l")  # hides the cursor,
    assert "\x1b[?25h" in drawn  # shows it again
    assert drawn.endswith("\x1b[2K")  # and erases the line


def test_stopping_before_the_start_does_nothing() -> None:
    run = tiny_run()
    run.split = "test"
    display = ProgressDisplay(make_screen(), run, RunProgress(run))
    display.stop()
    assert read(display.console) == []
