"""A crash of native code leaves its fault and its Python stack in the record."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import forked
from epochal.records.folder.crash import CRASH_FILE_NAME, find_crash, parse_crash
from epochal.records.folder.reader import read_folder
from epochal.records.mail.compose import describe_run

if TYPE_CHECKING:
    from pathlib import Path

CRASHING = """
import ctypes, sys
import torch
import epochal as ep

def crash():
    ctypes.string_at(0)

class Task(ep.Task):
    train_loader = ep.data.Tensors(torch.ones(8, 1)).loader(batch_size=2)

    def batch_forward(self, model, batch):
        if sys.argv[1] == "crash":
            crash()
        return model(batch[0])

    def batch_loss(self, out, batch):
        return out.mean()

config = {"optim": {"type": "SGD", "lr": 0.1}, "train": {"for": "1ep"}, "engine": {"hang_after": 0}}
choices = {"no_file": sys.argv[2] == "none"}
ep.Experiment(config, task=Task(), model=torch.nn.Linear(1, 1), choices=choices).fit()
"""

STACK = """Fatal Python error: Illegal instruction

Thread 0x00007f3a (most recent call first):
  File "/venv/site-packages/torch/nn/functional.py", line 5 in linear
  File "/venv/site-packages/torch/nn/modules/linear.py", line 7 in forward
  File "/venv/site-packages/torch/nn/modules/module.py", line 9 in _call_impl
  File "/home/me/project/model.py", line 11 in forward
  File "/home/me/project/task.py", line 13 in batch_forward
"""


def test_a_crash_is_shown_with_its_fault_and_its_lines(tmp_path: Path) -> None:
    (tmp_path / "crashing.py").write_text(CRASHING)
    done = forked.run("crashing.py", "crash", "record", cwd=tmp_path)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    (folder,) = (path.parent for path in tmp_path.rglob("run.json"))
    crash = find_crash(folder)
    assert crash is not None
    calls = ", called from crashing.py:7 crash, called from crashing.py:14 batch_forward"
    assert crash.lines.endswith(f" string_at{calls}")
    shown = forked.run("-m", "epochal", "show", "last", cwd=tmp_path).stdout
    assert f"its process crashed: Segmentation fault\n           in {crash.lines}\n" in shown
    mail = describe_run(read_folder(folder), "lost", run=folder.name)
    assert mail.why == f"its process crashed: Segmentation fault in {crash.lines}"


def test_a_crash_without_a_record_is_shown_on_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "crashing.py").write_text(CRASHING)
    done = forked.run("crashing.py", "crash", "none", cwd=tmp_path)
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert "line 14 in batch_forward" in done.stderr


def test_a_run_that_does_not_crash_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "crashing.py").write_text(CRASHING)
    done = forked.run("crashing.py", "train", "record", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [*tmp_path.rglob("run.json")]
    assert not [*tmp_path.rglob(CRASH_FILE_NAME)]


def test_a_crash_deep_in_a_library_names_the_first_line_outside_of_libraries() -> None:
    crash = parse_crash(STACK)
    assert crash is not None
    assert crash.fault == "Illegal instruction"
    assert crash.lines == "functional.py:5 linear, called from model.py:11 forward"
    assert parse_crash("no crash") is None
