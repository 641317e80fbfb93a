"""A frozen job is read back exactly as it was written."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from epochal.config import FrozenSource
from epochal.errors import RecordError
from epochal.launch.jobs.frozen_job import read_job
from epochal.launch.pool.local_executor import format_job_command
from epochal.launch.pool.pool import plan_start
from pooled import make_leases, waiting_jobs

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = [
    "", " ", "'", '"', "\\", "$(touch /tmp/x)", "`id`", "${HOME}", "$HOME", "%PATH%", "a b", "-rf",
    "--help", "\t", "\n", "\r\n", "\0", "\x1b[31m", "\x7f", "é", "日本語", "🙂", "\u202e", "\ufeff",
    "\ud800", "\udcff", "null", "true", "1e309", "NaN", "$nan", "-$inf", "${env:SECRET}", "$delete",
    "{a: 1}", "[1, 2", "!!python/object:os.system", "&a *a", "#", ": ", "=", "a=b=c", ";", "|", ">",
    "<", "*", "?", "~", "!", "../../etc/passwd", "x" * 5000,
]  # fmt: skip


def hostile_overrides(count: int = 200) -> list[str]:
    random_choice = random.Random(7)
    found = [f"model.{i}={text}" for i, text in enumerate(HOSTILE)]
    while len(found) < count:
        parts = random_choice.choices(HOSTILE[:-1], k=3)
        found.append(f"optim.key{len(found)}={''.join(parts)}")
    return found


def test_200_hostile_overrides_arrive_exactly_as_given(tmp_path: Path) -> None:
    overrides = hostile_overrides()
    assert len(overrides) == 200
    (waiting,) = waiting_jobs(tmp_path / "jobs", 1)
    texts = {text: text for text in HOSTILE}
    job = replace(
        waiting.job,
        overrides=tuple(overrides),
        choices={"desc": "$nan", "name": "'; rm -rf /", "epochs": 3},
        source=FrozenSource(tmp_path / "ü \n.yaml", texts, str(waiting.job.cwd)),
        environment={"PYTHONPATH": "a:b"},
    )
    job.write(waiting.file)
    found = read_job(waiting.file)
    assert found == job
    assert found.overrides == tuple(overrides)
    lease = make_leases(tmp_path).acquire()
    assert lease is not None
    words = format_job_command(plan_start(replace(waiting, job=job), lease))
    # The command names the file of the job; no value of the job is in it.
    assert words[1:] == ["-P", "-m", "epochal", "run-job", str(waiting.file), "--device", "cpu"]


def test_the_file_is_private(tmp_path: Path) -> None:
    (waiting,) = waiting_jobs(tmp_path / "jobs", 1)
    assert waiting.file.stat().st_mode & 0o777 == 0o600


def test_values_from_python_are_kept(tmp_path: Path) -> None:
    (waiting,) = waiting_jobs(tmp_path / "jobs", 1)
    values = {"optim": {"lr": 0.1, "x": float("inf")}, "names": ["a", None, True]}
    replace(waiting.job, source=values).write(waiting.file)
    assert read_job(waiting.file).source == values


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    (waiting,) = waiting_jobs(tmp_path / "jobs", 1)
    whole = json.loads(waiting.file.read_text())
    rows = {
        "missing": (None, "is no frozen job"),
        "garbage": ("{", "is no frozen job"),
        "a list": ("[]", "is no frozen job"),
        "incomplete": (json.dumps({"format": 1}), "is no frozen job: 'source'"),
        "later": (json.dumps(whole | {"format": 99}), "written by a later version"),
    }
    for name, (text, message) in rows.items():
        path = tmp_path / f"{name}.json"
        if text is not None:
            path.write_text(text)
        with pytest.raises(RecordError, match=message):
            read_job(path)
