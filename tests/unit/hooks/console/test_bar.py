"""The progress display, rendered at the widths that people use."""

from __future__ import annotations

import io

import pytest
from rich.console import Console as Screen

from epochal.hooks.console.bar import Columns, EpochLine, EvaluationLine, SummaryLine
from epochal.hooks.console.lines import Pace, Position, Reading

POSITION = Position(epoch=3, num_epochs=10, index=50, length=225)
NOWHERE = Position(epoch=0, num_epochs=None, index=0, length=None)
PACE = Pace(elapsed=62, left=753, rate=12_345, unit="sa")
READING = Reading(values={"loss": 0.3412, "acc": 0.9012}, lr=1e-3)
MANY = Reading(
    values={"loss": 0.34, "loss_box": 12.3, "loss_cls": 1e-7, "acc": 0.9, "top5": 0.99},
    lr=1e-3,
    grad_norm=1.25,
)


def render(line: object, width: int, *, encoding: str = "utf-8") -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    screen = Screen(file=file, width=width, force_terminal=True, color_system=None)
    screen.print(line)
    file.flush()
    return file.buffer.getvalue().decode(encoding).splitlines()  # type: ignore[attr-defined]


def epoch_line(
    reading: Reading = READING, *, position: Position = POSITION, pace: Pace = PACE
) -> EpochLine:
    return EpochLine(position, pace, reading, columns=Columns())


def test_wide_terminal_shows_everything_in_one_line() -> None:
    (line,) = render(epoch_line(), 120)
    assert line.startswith("Epoch  3/10 ━━━━━━")
    assert line.endswith(
        "50/225  loss 0.3412  acc 0.9012  lr 1.0e-03  12.3k sa/s  0:01:02  left 0:12:33"
    )
    assert len(line) <= 120


def test_narrow_terminal_puts_the_numbers_on_a_second_line() -> None:
    first, second = render(epoch_line(), 80)
    assert first.endswith("50/225  12.3k sa/s  0:01:02  left 0:12:33")
    assert second.rstrip() == "  loss 0.3412  acc 0.9012  lr 1.0e-03"


def test_the_loss_is_visible_on_a_terminal_of_60_columns() -> None:
    first, second = render(epoch_line(MANY), 60)
    assert "50/225" in first
    assert second.startswith("  loss 0.3400  ")


def test_numbers_beyond_the_second_line_are_hinted_at() -> None:
    _, second = render(epoch_line(MANY), 80)
    assert second.rstrip().endswith("top5 0.9900  …")
    _, second = render(epoch_line(MANY), 120)
    assert second.rstrip().endswith("lr 1.0e-03  grad_norm 1.2500")


@pytest.mark.parametrize("width", [200, 120, 100, 80, 60, 40, 30])
@pytest.mark.parametrize("reading", [READING, MANY, Reading()], ids=["few", "many", "none"])
def test_no_line_is_wider_than_the_terminal_nor_wrapped(width: int, reading: Reading) -> None:
    lines = render(epoch_line(reading), width)
    assert len(lines) <= 2
    assert all(len(line) <= width for line in lines)
    assert "50/225" in lines[0]


def test_tiny_terminal_drops_the_clocks_but_not_the_count() -> None:
    first, _ = render(epoch_line(), 40)
    assert first.rstrip().endswith("50/225")


def test_bar_does_not_grow_without_bound() -> None:
    (line,) = render(epoch_line(Reading()), 300)
    assert len(line.rstrip()) < 120


def test_line_keeps_its_shape_while_numbers_change() -> None:
    columns = Columns()
    shapes = set()
    for index, loss, left in [(5, 123.4, 4000), (50, 0.3, 800), (225, 12.0, 7)]:
        position = Position(epoch=3, num_epochs=10, index=index, length=225)
        pace = Pace(elapsed=index, left=left, rate=index * 100, unit="sa")
        reading = Reading(values={"loss": loss}, lr=1e-3)
        (line,) = render(EpochLine(position, pace, reading, columns=columns), 120)
        shapes.add((len(line), line.index("loss"), line.index("left")))
    assert len(shapes) == 1


def test_unknown_length_pulses_and_shows_what_is_known() -> None:
    position = Position(epoch=3, num_epochs=None, index=50, length=None)
    (line,) = render(epoch_line(Reading(), position=position, pace=Pace(elapsed=62)), 80)
    assert line.startswith("Epoch 3 ")
    assert "  50  " in line
    assert line.rstrip().endswith("left -:--:--")


def test_full_bar_at_the_end_and_none_at_the_start() -> None:
    def share(index: int) -> float:
        position = Position(epoch=1, num_epochs=1, index=index, length=8)
        (line,) = render(epoch_line(Reading(), position=position), 80)
        return line.count("━") / 40

    assert share(0) == 0
    assert share(8) > 0.5 > share(4) > 0


def test_evaluation_has_a_line_of_its_own() -> None:
    (line,) = render(EvaluationLine(POSITION, "val"), 80)
    assert line.startswith("  val ━━━")
    assert line.rstrip().endswith("50/225")


def test_summary_carries_a_star_only_when_best() -> None:
    numbers = Columns().numbers({"acc": 0.9})
    (best,) = render(SummaryLine(POSITION, "val", numbers, seconds=1.23, best=True), 80)
    assert best == "Epoch  3/10  val    acc 0.9000  1.23 s  ★ best"
    (other,) = render(SummaryLine(POSITION, "val", numbers, seconds=1.23, best=False), 80)
    assert "best" not in other


def test_a_long_summary_breaks_between_numbers() -> None:
    values = {f"loss_{name}": 0.25 for name in "abcdef"}
    summary = SummaryLine(POSITION, "train", Columns().numbers(values), seconds=1.23, best=True)
    for width in range(24, 120):
        lines = render(summary, width)
        assert all(len(line) <= width for line in lines)
        assert "".join(lines).count("0.2500") == len(values)
        assert all(f"loss_{name} 0.2500" in "\n".join(lines) for name in "abcdef")
        assert any("1.23 s" in line for line in lines)
    assert [line[:2] for line in render(summary, 60)] == ["Ep", "  ", "  "]


def test_terminal_that_knows_only_ascii_gets_ascii() -> None:
    star = SummaryLine(NOWHERE, "val", [], seconds=1.0, best=True)
    assert render(star, 80, encoding="ascii") == ["val    1.00 s  * best"]
    lines = render(epoch_line(MANY), 60, encoding="ascii")
    assert lines[1].rstrip().endswith("...")


def test_columns_only_grow() -> None:
    columns = Columns()
    assert [columns.pad("loss", text) for text in ("1.5", "12.25", "3.5")] == [
        "1.5",
        "12.25",
        "  3.5",
    ]
