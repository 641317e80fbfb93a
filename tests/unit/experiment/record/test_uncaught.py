"""Tests of how a script ends when a run fails."""

from __future__ import annotations

import sys
import traceback
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

import epochal as ep
import forked
from epochal.errors import ConfigError, Preempted
from epochal.testing import TinyModel, TinyTask

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
    import sys
    import epochal as ep
    from epochal.testing import TinyModel, TinyTask

    class Broken(TinyTask):
        def batch_loss(self, out, batch):
            return {"loss": (out["nothing"], 1)}

    class Nan(TinyTask):
        def batch_loss(self, out, batch):
            return {"loss": (out["logits"].mean() * float("nan"), 4)}

    class Stop(ep.Hook):
        def __init__(self, status):
            self.status = status
        def step_end(self, run):
            run.stop("a reason", status=self.status)

    def experiment(**changes):
        parts = {"task": TinyTask(), "model": TinyModel(), "optim": {"type": "SGD"}} | changes
        return ep.Experiment(**parts, choices={"no_file": True, "device": "cpu"})
"""


def test_a_failed_script_ends_with_a_message_and_the_exit_code(tmp_path: Path) -> None:
    for code, expected, shown in (
        ("experiment().fit(epochs=1)", 0, ""),
        ("experiment(task=Broken()).fit()", 1, "run failed: KeyError"),
        ("experiment(optim={'type': 'SGD', 'lrr': 1}).fit()", 78, "did you mean 'lr'?"),
        ("experiment(hooks=[Stop('interrupted')]).fit()", 130, "stopped by Ctrl-C"),
        ("experiment(hooks=[Stop('preempted')]).fit()", 75, "preempted after"),
        ("experiment(task=Nan()).fit(epochs=1)", 79, "loss and weights are not finite"),
        ("experiment(task=Broken()).fit(raise_errors=False)", 0, "run failed: KeyError"),
        ("ep.run('missing.yaml')", 66, "missing.yaml: no such file"),
        ("ep.Experiment('missing.yaml')", 66, "missing.yaml: no such file"),
        ("ep.resume('gone')", 74, "runs: no runs here"),
        ("print(ep.run(['missing.yaml'])[0].exit_code)", 0, "missing.yaml: no such file"),
    ):
        (tmp_path / "script.py").write_text(f"{dedent(SCRIPT)}\n{code}\n")
        done = forked.run("script.py", cwd=tmp_path)
        assert done.returncode == expected, code
        assert "Traceback" not in done.stderr, code
        assert not shown or done.stderr.count(shown) == 1, code


def test_other_errors_and_other_hooks_are_left_alone(tmp_path: Path) -> None:
    own = "sys.excepthook = lambda kind, error, trace: print('mine:', kind.__name__)\n"
    for code, expected, shown in (
        (f"{dedent(SCRIPT)}\nraise ValueError('own')", 1, "Traceback"),
        (f"import sys\n{own}{dedent(SCRIPT)}\nep.run('missing.yaml')", 66, "mine: MissingFile"),
    ):
        (tmp_path / "script.py").write_text(code)
        done = forked.run("script.py", cwd=tmp_path)
        assert done.returncode == expected, code
        assert shown in done.stdout + done.stderr, code


class Broken(TinyTask):
    """Fails in the user's code."""

    def batch_loss(self, out: object, batch: object) -> object:
        raise ValueError("no loss today")


def test_the_traceback_of_the_users_error_has_no_frames_of_the_engine() -> None:
    experiment = ep.Experiment(
        task=Broken(), model=TinyModel(), optim={"type": "SGD"}, choices={"no_file": True}
    )
    with pytest.raises(ValueError, match="no loss today") as caught:
        experiment.fit()
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[1:] == ["fit", "run_experiment", "batch_loss"]
    hidden = [bool(one.frame.f_locals.get("__tracebackhide__")) for one in caught.traceback]
    assert hidden == [False, True, True, False]


def test_an_interrupted_run_raises_what_python_raises() -> None:
    class Stop(ep.Hook):
        def step_end(self, run: ep.Run) -> None:
            run.stop("a reason", status=self.status)

    for status, kind in (("interrupted", KeyboardInterrupt), ("preempted", Preempted)):
        hook = Stop()
        hook.status = status  # type: ignore[attr-defined]
        parts = {"task": TinyTask(), "model": TinyModel(), "optim": {"type": "SGD"}}
        with pytest.raises(kind):
            ep.Experiment(**parts, hooks=[hook], choices={"no_file": True}).fit()


def test_an_interactive_session_continues_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ConfigError()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    sys.excepthook(ConfigError, error, None)
