"""Tests of which kind of step a run takes where there is no CUDA device."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from engine.parts import Sums, fit, make_run
from epochal.engine import Hook, Run


class Choices(Hook):
    def run_end(self, run: Run) -> None:
        self.kept = dict(run.choices)


def chosen(**engine: Any) -> dict[str, object]:
    hook = Choices()
    fit(make_run(Sums(), hooks=(hook,), for_="1ep", engine=engine))
    return hook.kept


@pytest.mark.parametrize("step", ["auto", "eager"])
def test_steps_on_the_cpu_are_eager_without_a_message(
    step: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert chosen(step=step)["step"] == "eager"
    assert "step:" not in caplog.text


def test_graphs_that_are_requested_and_impossible_are_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert chosen(step="graph")["step"] == "eager"
    assert "step: eager: graphs need a CUDA device, and this one is cpu" in caplog.text


def test_compiling_works_without_graphs_and_says_why_there_are_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    assert chosen(step="compile", compile_backend="eager")["step"] == "compile"
    assert "step: compiled, not captured: graphs need a CUDA device" in caplog.text
