"""A job from a fork server has the state, the bits and the record of one in a new process."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from epochal.experiment.config.check_file import check_file
from epochal.experiment.config.freeze_jobs import JobFreezer
from epochal.launch.pool.backlog import JobList
from epochal.launch.pool.local_executor import JOB_IMPORTS, LocalExecutor
from epochal.launch.pool.pool import Pool
from epochal.records.find import read_run
from pooled import make_leases
from small_project import write

if TYPE_CHECKING:
    from epochal.launch.pool.backlog import JobEnd, WaitingJob

HOOKS = '''
"""A hook that writes down the state of its process, and one that ends it."""

import ctypes
import json
import os
import random
import signal
import sys
import threading
import warnings
from pathlib import Path

import torch

import epochal as ep

STATE = {
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "path": sys.path,
    "modules": sorted(sys.modules),
    "filters": sorted(map(str, warnings.filters)),  # ruamel.yaml adds its own before or after sympy
    "signals": [str(signal.getsignal(one)).partition(" at ")[0] for one in signal.valid_signals()],
    "threads": threading.active_count(),
    "torch_threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
    "torch_seed": torch.initial_seed(),
    "torch_config": torch.__config__.parallel_info(),
    "deterministic": torch.are_deterministic_algorithms_enabled(),
    "bad_fork": torch.cuda._is_in_bad_fork(),
    "main": [sys.modules["__main__"].__spec__.name, sys.modules["__main__"].__file__],
    "environment": dict(os.environ),
    "cwd": os.getcwd(),
}


class WriteState(ep.Hook):
    def run_start(self, run):
        (run.dir / "state.json").write_text(json.dumps(STATE))


class Crash(ep.Hook):
    def step_end(self, run):
        ctypes.string_at(0)
'''
STATE = ['hooks=[{"type": "shop.hooks.WriteState"}]', "train.for=1ep"]
CRASH = ['hooks=[{"type": "shop.hooks.Crash"}]', "train.for=1ep"]


def freeze(*overrides: list[str]) -> list[WaitingJob]:
    freezer = JobFreezer(Path("runs"), command="test")
    checked = [check_file(Path("config.yaml"), one, {}).checked[0] for one in overrides]
    pairs = zip(checked, overrides, strict=True)
    return [freezer.freeze(config, overrides=one) for config, one in pairs]


def run_all(jobs: list[WaitingJob], executor: LocalExecutor, folder: Path) -> list[JobEnd]:
    backlog = JobList(jobs)
    Pool(backlog, executor, make_leases(folder)).run()
    return [backlog.ends[one.key] for one in jobs]


def read_facts(end: JobEnd) -> dict[str, Any]:
    """The state of the process of a run, its bits, and its record without times and ids."""
    assert end.run_dir is not None
    state = re.sub(r"/\d+\.(json|run)\b", r"/N.\1", (end.run_dir / "state.json").read_text())
    record = read_run(end.run_dir)
    changing = ("id", "created", "digest", "attempts")
    return {
        "state": json.loads(state),
        "weights": (end.run_dir / "checkpoints" / "final.safetensors").read_bytes(),
        "points": {
            name: [one.tolist() for one in record.series(name)]
            for name in record.metric_names()
            if not name.startswith("time/")
        },
        "run": {key: value for key, value in record.run.items() if key not in changing},
        "configs": {one.name: one.read_bytes() for one in (end.run_dir / "config").glob("*.*")},
    }


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a fork server")
def test_a_forked_job_equals_one_in_a_new_process(shop: Path, tmp_path: Path) -> None:
    write(shop / "shop" / "hooks.py", HOOKS)
    jobs = freeze(STATE, STATE, CRASH, STATE)
    (shop / "shop" / "parts.py").write_text("raise RuntimeError('edited after the submission')")
    (new,) = run_all(jobs[:1], LocalExecutor(), tmp_path)
    first, crashed, second = run_all(jobs[1:], LocalExecutor(imports=JOB_IMPORTS), tmp_path)
    assert [one.code for one in (new, first, crashed, second)] == [0, 0, -signal.SIGSEGV, 0]
    expected = read_facts(new)
    for one in (first, second):
        for name, found in read_facts(one).items():
            assert found == expected[name], name
