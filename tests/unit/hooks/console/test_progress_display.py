"""Position, speed and progress bars of a run."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console as Screen
from rich.text import Text

from epochal.engine.interfaces.hook import Hook
from epochal.engine.interfaces.options import OptimOptions
from epochal.engine.runner import Predict
from epochal.hooks.console.progress_display import (
    ColumnWidths,
    ProgressDisplay,
    RunProgress,
    SummaryLine,
    format_clock,
    format_duration,
    format_number,
    format_progress,
)
from epochal.testing import TinyTask, execute_run, short_options, tiny_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from epochal.engine.run.engine_run import EngineRun


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
    rates: tuple[tuple[str, float], ...] = (("sa", 12_345),)
    is_by_steps: bool = False
    elapsed_seconds: float = 62
    eta_seconds: float | None = 753

    @property
    def share(self) -> tuple[int, int | None]:
        return self.completed, self.total

    @property
    def step_count(self) -> str:
        return format_progress(self.completed, self.total)

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
            completed=index, rates=(("sa", index * 100),), elapsed_seconds=index, eta_seconds=left
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

    def run_start(self, run: EngineRun) -> None:
        self._progress = RunProgress(run)
        self._display = ProgressDisplay(make_screen(), run, self._progress)
        self._display.numbers = {"loss": "0.5000", "lr": "1.0e-01"}

    def epoch_start(self, run: EngineRun, split: str) -> None:
        if split == "train":
            self._progress.start_epoch()
        self._display.show(split)

    def loop_start(self, run: EngineRun, split: str) -> None:
        if split != "train":
            self._progress.start_loader(split)

    def batch_end(self, run: EngineRun, split: str) -> None:  # type: ignore[override]  # by name
        screen = make_screen()
        screen.print(self._display.get_renderable())
        self.pictures.append(read(screen))

    def run_end(self, run: EngineRun) -> None:
        self._display.stop()
        self._display.stop()


def take_pictures(**options: object) -> list[list[str]]:
    camera = Camera()
    options = {"sanity_batches": 0, "for_": "1ep", "limit_batches": 2} | options
    execute_run(tiny_run(camera, options=short_options(**options)))
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


@dataclass(frozen=True)
class Seen:
    """What the progress said at one moment."""

    epoch: str
    completed: int
    total: int | None
    rate: float
    unit: str
    elapsed: float
    eta: float | None


class Follower(Hook):
    """Follows a run as the console does; a step takes 2 s, a batch of an evaluation 0.5 s."""

    priority = 0

    def __init__(self) -> None:
        self.steps: list[Seen] = []
        self.evaluated: list[tuple[int, int | None]] = []
        self.rates: list[float] = []
        self.seconds: list[float] = []
        self._time = 0.0

    def setup(self, run: EngineRun) -> None:
        run.clock.now = lambda: self._time
        run.clock.start()

    def run_start(self, run: EngineRun) -> None:
        self._progress = RunProgress(run)

    def epoch_start(self, run: EngineRun, split: str) -> None:
        if split == "train":
            self._progress.start_epoch()
        else:
            self._progress.start_evaluation()

    def loop_start(self, run: EngineRun, split: str) -> None:
        if split != "train":
            self._progress.start_loader(split)

    def step_end(self, run: EngineRun) -> None:
        self._time += 2.0
        one = self._progress
        one.update_speed()
        ((unit, rate),) = one.rates
        self.rates.append(rate)
        times = one.elapsed_seconds, one.eta_seconds
        self.steps.append(Seen(one.epoch_count, one.completed, one.total, rate, unit, *times))
        one.restart_speed()

    def batch_end(self, run: EngineRun, split: str) -> None:  # type: ignore[override]  # by name
        if split != "train":
            self._time += 0.5
            self.evaluated.append(self._progress.evaluated)
            self._progress.update_speed()
            self.rates.append(self._progress.rates[-1][1])

    def epoch_end(self, run: EngineRun, split: str, metrics: dict[str, float]) -> None:
        one = self._progress
        self.seconds.append(one.epoch_seconds if split == "train" else one.evaluation_seconds)


class Stream(TinyTask):
    """A training loader that does not know its length nor its batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.train_loader = _Unsized(self.train_loader)  # type: ignore[assignment]  # any iterable


class _Unsized:
    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Any:
        return iter(self._batches)


def follow(*, task: TinyTask | None = None, runner: Any = None, **options: Any) -> Follower:
    follower = Follower()
    options = {"sanity_batches": 0} | options
    run = tiny_run(follower, task=task, options=short_options(**options), monitor=None)
    execute_run(run, runner)
    return follower


def test_steps_are_counted_within_their_epoch() -> None:
    steps = follow(for_="2ep", eval_every=0).steps
    assert [(one.epoch, one.completed) for one in steps] == [
        *(("1/2", index) for index in range(1, 7)),
        *(("2/2", index) for index in range(1, 7)),
    ]
    assert {one.total for one in steps} == {6}


def test_evaluations_and_predictions_count_their_own_batches() -> None:
    expected = [(index, 6) for index in range(1, 7)]
    assert follow(for_="1ep").evaluated == expected
    assert follow(runner=Predict()).evaluated == expected


def test_speed_is_in_samples_per_second_and_the_remaining_time_is_known() -> None:
    steps = follow(for_="2ep", eval_every=0).steps
    assert {(one.rate, one.unit) for one in steps} == {(2.0, "sa")}
    assert steps[2].elapsed == 6.0
    assert steps[2].eta == pytest.approx(18.0)


def test_an_evaluation_does_not_lower_the_shown_speed() -> None:
    assert set(follow(for_="2ep").rates) == {2.0}


def test_seconds_of_epochs_and_evaluations_are_separate() -> None:
    assert follow(for_="2ep").seconds == [12.0, 3.0, 12.0, 3.0]


def test_a_loader_without_length_has_no_total() -> None:
    steps = follow(task=Stream(), for_="2ep", eval_every=0).steps
    assert {(one.epoch[-2:], one.total, one.eta) for one in steps} == {("/2", None, None)}


def test_steps_before_a_checkpoint_count_for_their_epoch() -> None:
    run = tiny_run()
    run.options = replace(run.options, optim=OptimOptions(accumulate=2))
    progress = RunProgress(run)
    progress.start_epoch()
    run.step = 10
    run.feed.start_at(1, 3, 40)
    progress.resume_epoch()
    assert progress.completed == 2


def test_numbers_keep_their_leading_digits() -> None:
    expected = {
        0.0: "0.0000",
        0.34123: "0.3412",
        -12.5: "-12.500",
        0.999_99: "1.0000",
        9.999_99: "10.000",
        123.456: "123.46",
        1234.56: "1234.6",
        123_456.0: "1.23e+05",
        0.000_34: "3.40e-04",
        -1e-9: "-1.00e-09",
        -math.inf: "-inf",
    }
    assert {value: format_number(value) for value in expected} == expected
    assert format_number(math.nan) == "nan"


def test_numbers_of_one_sign_have_one_width_over_seven_orders() -> None:
    widths = {len(format_number(3.21 * 10.0**exponent)) for exponent in range(-3, 4)}
    assert widths == {6}


def test_clock_times_are_hours_minutes_and_seconds() -> None:
    expected = {
        0: "0:00:00",
        62: "0:01:02",
        59.6: "0:01:00",
        3_600 * 23 + 59: "23:00:59",
        90_000: "1d 1:00:00",
        200_000: "2d 7:33:20",
        -3: "0:00:00",
        None: "-:--:--",
        math.inf: "-:--:--",
    }
    assert {seconds: format_clock(seconds) for seconds in expected} == expected


def test_durations_have_three_digits_and_a_unit() -> None:
    expected = {
        -0.1: "0 ms",
        0.0351: "35 ms",
        0.9996: "1.00 s",
        9.996: "10.0 s",
        75.04: "75.0 s",
        999.6: "0:16:40",
    }
    assert {seconds: format_duration(seconds) for seconds in expected} == expected


def test_counts_keep_their_width() -> None:
    assert format_progress(7, 225) == "  7/225"
    assert format_progress(7, None) == "7"


@pytest.mark.parametrize(
    ("length", "count", "shares"),
    [
        ("9st", "9/9", [(4, 9), (9, 9)]),
        ("36sa", "9/9", [(4, 9), (9, 9)]),
        ("18s", "9", [(8.0, 18), (18.0, 18)]),
    ],
)
def test_a_run_that_ends_inside_an_epoch_counts_its_own_steps(
    length: str, count: str, shares: list[Any]
) -> None:
    found: list[Any] = []

    class Watch(Follower):
        def step_end(self, run: EngineRun) -> None:
            self._time += 2.0
            self._progress.update_speed()
            found.append((self._progress.share, self._progress.step_count, self._progress.rates))
            self._progress.restart_speed()

    options = short_options(sanity_batches=0, for_=length, eval_every=0)
    execute_run(tiny_run(Watch(), options=options, monitor=None))
    assert [found[3][0], found[-1][0]] == shares
    assert found[-1][1] == count
    assert found[-1][2] == [("st", 0.5), ("sa", 2.0)]
