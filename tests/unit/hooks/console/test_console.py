"""The console hook: what a whole run looks like in a file and on a terminal."""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from rich.console import Console as Screen

from epochal.engine.execute import execute
from epochal.engine.interfaces.hook import Hook
from epochal.engine.interfaces.options import LogOptions
from epochal.engine.measure.meter import Meter
from epochal.engine.runner import Predict, Train
from epochal.engine.runner import Test as Evaluate
from epochal.hooks.console import Console
from epochal.testing import InjectedError, TinyTask, execute_run, short_options, tiny_run

if TYPE_CHECKING:
    from epochal.engine.run.engine_run import EngineRun


def show(
    hook: Console,
    *others: Hook,
    terminal: bool = False,
    runner: Any = None,
    task: TinyTask | None = None,
    log: LogOptions | None = None,
    monitor: str = "+val/acc",
    **options: Any,
) -> str:
    """All that a run writes to its screen, without colours."""
    hook.screen = Screen(file=io.StringIO(), width=100, force_terminal=terminal, color_system=None)
    options = {"sanity_batches": 0, "for_": "2ep"} | options
    run = tiny_run(
        hook, *others, task=task, monitor=monitor, options=short_options(log=log, **options)
    )
    execute(run, runner or Train())
    return hook.screen.file.getvalue()  # type: ignore[attr-defined]


def messages(text: str) -> list[str]:
    """The lines without their time."""
    return [line[20:] for line in text.splitlines()]


def test_a_file_gets_a_line_per_interval_and_a_summary_per_epoch_and_evaluation() -> None:
    lines = messages(show(Console(every="3st")))
    figures = r"\d+:\d\d:\d\d|\d+(\.\d+)? m?s\b|\d+\.\d+(e-\d+)?"
    shapes = [re.sub(figures, "#", line) for line in lines]
    interval = "lr: #  eta: #  time: #  data_time: #  loss: #  acc: #"
    assert [shape.removesuffix("  * best") for shape in shapes] == [
        f"Epoch [1/2][3/6]  {interval}",
        f"Epoch [1/2][6/6]  {interval}",
        "Epoch [1/2]  train  loss: #  acc: #  (#)",
        "Epoch [1/2]  val    acc: #  (#)",
        f"Epoch [2/2][3/6]  {interval}",
        f"Epoch [2/2][6/6]  {interval}",
        "Epoch [2/2]  train  loss: #  acc: #  (#)",
        "Epoch [2/2]  val    acc: #  (#)",
    ]


class Late(Hook):
    """Makes means arrive a step later, like those of a GPU."""

    def setup(self, run: EngineRun) -> None:
        run.meter = Meter(is_async=True, wake=run.plan.wake)


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_are_the_same_when_their_numbers_arrive_later(
    terminal: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def lines(*others: Hook) -> list[str]:
        caplog.clear()
        hook = Console(every="3st", data_time=False)
        show(hook, *others, terminal=terminal, eval_every="3st")
        varying = r"eta: [\d:]+|time: [\d.]+|\([\d.]+ m?s\)"
        return [re.sub(varying, "", line) for line in caplog.messages]

    at_once = lines()
    assert len(at_once) == 10
    assert lines(Late()) == at_once


def test_values_of_an_interval_are_means_since_the_last_line() -> None:
    class Counting(TinyTask):
        seen = 0

        def batch_metric(self, out: object, batch: Any) -> dict[str, tuple[float, int]]:
            self.seen += 1
            return {"number": (float(self.seen), len(batch["label"]))}

    text = show(Console(every="2st"), task=Counting(), for_="4st", eval_every=0)
    assert re.findall(r"eta: .*number: ([\d.]+)", text) == ["1.5000", "3.5000"]


def test_the_first_line_of_a_resumed_run_leaves_out_the_time_before() -> None:
    class Resumed(Hook):
        """Continues a run that took 1000 seconds for its first step."""

        def run_start(self, run: EngineRun) -> None:
            run.step = 1
            run.clock.load_state_dict({"seconds": 1000.0, "paused_seconds": 0.0})
            run.fire("checkpoint_loaded", Path("digits-1"))

    text = show(Console(every="4st"), Resumed(), for_="4st", eval_every=0)
    (seconds,) = re.findall(r" time: ([\d.]+)", text)
    assert float(seconds) < 100


def test_the_best_evaluation_has_a_star() -> None:
    class Scripted(TinyTask):
        scores = iter([0.5, 0.7, 0.6])

        def batch_metric(self, out: object, batch: Any) -> dict[str, tuple[float, int]]:
            return {}

        def epoch_metric(self) -> dict[str, float]:
            return {"acc": next(self.scores)}

    text = show(Console(), task=Scripted(), for_="3ep")
    summaries = [line for line in messages(text) if "val" in line]
    assert [line.endswith("* best") for line in summaries] == [True, True, False]


@pytest.mark.parametrize("terminal", [False, True])
def test_zero_shows_only_summaries_of_epochs_and_evaluations(terminal: bool) -> None:
    text = show(Console(every=0), terminal=terminal)
    assert "][" not in text
    assert "━" not in text
    assert text.count("train") == 2
    assert text.count("val") == 2


def test_memory_is_shown_on_devices_that_measure_it(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = "epochal.hooks.console.console.peak_memory_bytes"
    monkeypatch.setattr(peak, lambda device: 312 * 2**20)
    assert re.search(r"data_time: [\d.]+  memory: 312  loss: ", show(Console(every="3st")))
    assert "memory" not in show(Console(every="3st", memory=False))


def test_unknown_lengths_are_left_out() -> None:
    class Stream(TinyTask):
        def __init__(self) -> None:
            super().__init__()
            self.train_loader = _Unsized(self.train_loader)  # type: ignore[assignment]

    lines = messages(show(Console(every="3st"), task=Stream(), for_="1ep"))
    assert lines[0].startswith("Epoch [1/1][3]  lr: 1.0e-01  ")


class _Unsized:
    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __iter__(self) -> Any:
        return iter(self._batches)


def test_data_time_can_be_hidden() -> None:
    assert "data_time" not in show(Console(every="3st", data_time=False))


def test_the_gradient_norm_is_shown_on_request() -> None:
    measured = LogOptions(grad_norm=True)
    text = show(Console(every="3st", grad_norm=True), log=measured)
    assert re.search(r"time: [\d.]+  grad_norm: [\d.]+  loss: ", text)
    assert "grad_norm" not in show(Console(every="3st"), log=measured)
    assert "grad_norm" not in show(Console(every="3st", grad_norm=True))


def test_a_terminal_shows_the_bar_and_keeps_the_summaries() -> None:
    text = show(Console(every="3st"), terminal=True)
    assert "Epoch 2/2 ━" in text
    assert "[1/2]" not in text
    kept = re.findall(r"^Epoch (./2)  (train|val)", _last_screen(text), re.MULTILINE)
    assert kept == [("1/2", "train"), ("1/2", "val"), ("2/2", "train"), ("2/2", "val")]


class Snapshots(Hook):
    """Keeps the numbers of the bar after each step."""

    priority = 900

    def __init__(self, console: Console) -> None:
        self.console = console
        self.shown: list[dict[str, str]] = []

    def step_end(self, run: EngineRun) -> None:
        display = self.console._display
        assert display is not None
        self.shown.append(dict(display.numbers))


def test_the_bar_shows_its_first_numbers_after_the_first_step() -> None:
    console = Console(every="5st")
    snapshots = Snapshots(console)
    text = show(console, snapshots, terminal=True, for_="1ep", eval_every=0)
    first, *others = snapshots.shown
    assert list(first) == ["loss", "acc", "lr"]
    assert first["lr"] == "1.0e-01"
    assert others[:3] == [first] * 3
    assert others[3] != first
    assert "[5/6]" not in text


def test_the_first_numbers_stay_in_the_mean_of_their_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def line(*, terminal: bool) -> str:
        caplog.clear()
        show(Console(every="5st"), terminal=terminal, for_="1ep")
        (found,) = [message for message in caplog.messages if "[5/6]" in message]
        return found[found.index("loss") :]

    assert line(terminal=True) == line(terminal=False)


def test_the_bar_shows_the_means_of_short_epochs() -> None:
    console = Console(every="100st")
    snapshots = Snapshots(console)
    show(console, snapshots, terminal=True, for_="2ep", eval_every=0)
    shown = [numbers["loss"] for numbers in snapshots.shown]
    assert len(set(shown[:6])) == len(set(shown[6:])) == 1
    assert shown[0] != shown[6]


def test_a_terminal_without_bar_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    text = show(Console(every="3st", bar=False), terminal=True)
    assert "Epoch [1/2][3/6]" in text
    assert "\x1b[?25l" not in text


def test_the_log_has_the_same_lines_on_a_terminal_and_in_a_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def logged(*, terminal: bool) -> list[str]:
        caplog.clear()
        show(Console(every="3st"), terminal=terminal)
        return [
            re.sub(r"(time: \S+|\(.*\))", "", record.getMessage())
            for record in caplog.records
            if record.name == "epochal.hooks.console"
        ]

    on_terminal, in_file = logged(terminal=True), logged(terminal=False)
    assert on_terminal == in_file
    assert sum("][" in line for line in in_file) == 4


def test_log_lines_of_users_are_shown_above_the_bar() -> None:
    class Talkative(Hook):
        def epoch_end(self, run: EngineRun, split: str, metrics: dict[str, float]) -> None:
            logging.getLogger("users.code").warning("odd batch in %s", split)

    text = show(Console(every="3st"), Talkative(), terminal=True)
    assert "warning users.code: odd batch in train" in _last_screen(text)


def test_summaries_of_test_and_predict_have_no_epoch() -> None:
    assert messages(show(Console(), runner=Evaluate()))[0].startswith("test   acc: ")
    assert messages(show(Console(), runner=Predict()))[0].startswith("predict  (")


def test_metrics_of_several_loaders_have_their_names() -> None:
    class Several(TinyTask):
        def __init__(self) -> None:
            super().__init__()
            self.val_loader = {"a": self.val_loader, "b": self.val_loader}  # type: ignore[assignment, dict-item]

    lines = messages(show(Console(), task=Several(), for_="1ep", monitor="+val/a/acc"))
    assert "a/acc: " in lines[-1]
    assert "b/acc: " in lines[-1]


@pytest.mark.parametrize("terminal", [False, True])
def test_an_error_restores_the_screen_and_the_log(terminal: bool) -> None:
    class Broken(Hook):
        def step_end(self, run: EngineRun) -> None:
            raise InjectedError("on purpose")

    handlers = list(logging.getLogger().handlers)
    text = show(Console(), Broken(), terminal=terminal)
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")
    assert logging.getLogger().handlers == handlers


def test_an_error_before_the_start_restores_the_log() -> None:
    class Broken(Hook):
        def assembled(self, run: EngineRun) -> None:
            raise InjectedError("on purpose")

    handlers = list(logging.getLogger().handlers)
    show(Console(), Broken(), terminal=True)
    assert logging.getLogger().handlers == handlers


def test_standard_output_is_the_screen_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    execute_run(tiny_run(Console(every="3st"), options=short_options(for_="1ep")))
    assert "Epoch [1/1][3/6]" in capsys.readouterr().out


def test_force_color_does_not_make_a_file_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    execute_run(tiny_run(Console(every="3st"), options=short_options(for_="1ep")))
    assert "\x1b" not in capsys.readouterr().out


def test_nothing_is_read_from_the_meter_between_two_due_steps() -> None:
    class Counter(Hook):
        """Counts how often sums are brought over from the device."""

        def __init__(self) -> None:
            self.folds = 0

        def assembled(self, run: EngineRun) -> None:
            fold = run.meter.flush

            def count() -> None:
                self.folds += 1
                fold()

            run.meter.flush = count  # type: ignore[method-assign]  # to count calls

    def folds(every: str) -> int:
        counter = Counter()
        show(Console(every=every), counter, terminal=True, for_="1ep", eval_every=0)
        return counter.folds

    # Nothing is read at steps 2 to 5; the first numbers come after step 1.
    assert folds("6st") == folds("1st") - 4


def test_a_learning_rate_can_be_a_tensor() -> None:
    class TensorRate(Hook):
        def assembled(self, run: EngineRun) -> None:
            rate = torch.tensor(0.025)
            run.optimizer = torch.optim.AdamW(run.model.parameters(), lr=rate, foreach=False)

    assert "lr: 2.5e-02" in show(Console(every="3st"), TensorRate())


def _last_screen(text: str) -> str:
    """What remains on a terminal after all cursor movements."""
    rows, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[\??[\d;]*[a-zA-Z]|\n|\r|[^\x1b\n\r]+", text):
        if part == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif part == "\r":
            column = 0
        elif part.endswith("A"):
            row -= int(part[2:-1])
        elif part.endswith("K"):
            rows[row] = ""
        elif not part.startswith("\x1b"):
            rows[row] = rows[row][:column].ljust(column) + part
            column += len(part)
    return "\n".join(rows)


class Worded(TinyTask):
    """Counts seven words in each sample."""

    count_unit = "words"

    def batch_loss(self, out: Any, batch: Any) -> Any:
        value, count = super().batch_loss(out, batch)["loss"]
        return {"loss": (value, 7 * count)}


def test_a_run_that_ends_by_steps_counts_steps_and_its_speed_in_the_units_of_the_task() -> None:
    for task, unit in ((None, "sa"), (Worded(), "words")):
        lines = messages(show(Console(every="3st"), task=task, for_="9st", eval_every="6st"))
        speed = rf"speed: (\S+) st/s, (\S+) {unit}/s"
        assert re.match(rf"Step \[3/9\]  lr: 1.0e-01  eta: \S+  {speed}  time: ", lines[0]), unit
        assert [line.partition("  ")[0] for line in lines] == [
            *["Step [3/9]", "Step [6/9]", "Step [6/9]", "Step [6/9]", "Step [9/9]", "Step [9/9]"]
        ]


def test_the_bar_of_a_run_that_ends_by_steps_counts_them() -> None:
    text = show(Console(every="3st"), task=Worded(), terminal=True, for_="9st", eval_every=0)
    assert re.search(r"Step .* 9/9 .* \S+ st/s +\S+ words/s", text)
    assert "Epoch" not in text
