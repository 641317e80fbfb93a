"""A worker that dies leaves behind what it was reading."""

from __future__ import annotations

import re
from pathlib import Path

import forked
from epochal.engine.process.worker_reads import ReadLog

# In a process of its own: torch reports a dead worker at any line of the main thread.
DEADLY = """
import ctypes, os, random, signal, sys
import torch
from torch.utils.data import DataLoader, Dataset
import epochal as ep

def crash():
    ctypes.string_at(0)

def die_at_five(number):
    if number == 5 and sys.argv[2] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif number == 5:
        crash()
    return float(number)

def draw(number):
    random.random()
    return die_at_five(number)

def die_in_collate(numbers):
    return torch.tensor([die_at_five(number) for number in numbers])

class Deadly(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return die_at_five(index)

def build_loader(kind):
    if kind == "dataset":
        return DataLoader(Deadly(), batch_size=2, num_workers=1)
    pipes, options = {
        "chain": ([die_at_five], {}),
        "shuffled": ([die_at_five, ep.data.Shuffle()], {}),
        "drawing": ([draw, ep.data.Shuffle()], {}),
        "collate": ([], {"collate": die_in_collate}),
    }[kind]
    return ep.data.chain([*range(8)], *pipes).loader(batch_size=2, workers=1, **options)

class Task(ep.Task):
    train_loader = build_loader(sys.argv[1])

    def batch_forward(self, model, batch):
        return model(batch[:, None].float())

    def batch_loss(self, out, batch):
        return out.mean()

config = {"optim": {"type": "SGD", "lr": 0.1}, "train": {"for": "1ep"}}
made = ep.Experiment(config, task=Task(), model=torch.nn.Linear(1, 1))
print("message:", made.fit(raise_errors=False).message, flush=True)
os._exit(0)
"""


IN_STEP = """
import os, signal, threading
import torch
import epochal as ep

def die_at_five(number):
    if number == 5:
        open("gate").read()  # until the first step has begun
        os.kill(os.getpid(), signal.SIGKILL)
    return float(number)

class Task(ep.Task):
    train_loader = ep.data.chain(list(range(8)), die_at_five).loader(batch_size=2, workers=1)

    def batch_forward(self, model, batch):
        open("gate", "w").close()
        threading.Event().wait()  # torch raises here

    def batch_loss(self, out, batch):
        return out.mean()

os.mkfifo("gate")
config = {"optim": {"type": "SGD", "lr": 0.1}, "train": {"for": "1ep"}}
made = ep.Experiment(config, task=Task(), model=torch.nn.Linear(1, 1))
print("message:", made.fit(raise_errors=False).message, flush=True)
os._exit(0)
"""


def test_what_a_worker_read_is_named_also_if_its_death_is_noticed_in_a_step(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(IN_STEP)
    done = forked.run("deadly.py", cwd=tmp_path)
    message = "train_loader: a worker process of the loader died while it read batch 2, "
    message += "item 5 of pipe 2\n"
    assert f"message: {message}" in done.stdout, (done.stdout, done.stderr)


def test_the_sample_that_killed_a_worker_is_named(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    rows = {
        "dataset": "Deadly sample 5",
        "chain": "batch 2, item 5 of pipe 2",
        "shuffled": r"batch \d, item 5 of pipe 2",
        "drawing": r"batch \d, item 5 of pipe 2",
        "collate": "batch 2",
    }
    for kind, last in rows.items():
        done = forked.run("deadly.py", kind, "kill", cwd=tmp_path)
        message = f"train_loader: a worker process of the loader died while it read {last}\n"
        assert re.search(f"message: {message}", done.stdout), (kind, done.stdout, done.stderr)


def test_a_crash_of_a_worker_is_shown_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    for kind, last in (("dataset", "Deadly sample 5"), ("chain", "batch 2, item 5 of pipe 2")):
        done = forked.run("deadly.py", kind, "crash", cwd=tmp_path)
        first, where, hint = done.stdout.splitlines()[-3:]
        assert first.endswith(f"died while it read {last}: Segmentation fault"), (kind, done)
        frames = (
            r"  in \S+:\d+ string_at, called from deadly\.py:8 crash, called from deadly\.py:14 "
        )
        assert re.fullmatch(frames + "die_at_five", where), (kind, where)
        assert hint == "  native code that is called there crashed; try that sample alone"


def test_the_files_of_crashes_are_removed_with_the_log() -> None:
    log = ReadLog(1)
    folder = Path(log._folder)
    assert folder.is_dir()
    assert log.find_crash(RuntimeError("DataLoader worker (pid 1)")) == ("", "")
    del log
    assert not folder.exists()


def test_only_a_worker_leaves_a_note() -> None:
    log = ReadLog(2)
    log.note(3)
    for text in ("DataLoader worker (pid 1) is killed by signal", "(pid(s) 1, 2) exited", "?"):
        assert log.find_last(RuntimeError(text)) == "", text
