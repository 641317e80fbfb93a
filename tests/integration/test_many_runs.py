"""Pool and queue with real runs: results in order, frozen at submission, resumed exactly."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

import epochal as ep
from epochal.launch.queue.queue import Queue
from forked import Child, run
from small_project import Command, forgetting, run_folders, write

if TYPE_CHECKING:
    from pathlib import Path

EDITED = """
raise RuntimeError("this code was edited after the submission")
"""


@pytest.fixture(autouse=True)
def own_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCHAL_LEASES_DIR", str(tmp_path / "leases" / "here"))


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def weights(folder: Path) -> bytes:
    return (folder / "checkpoints" / "final.safetensors").read_bytes()


def test_a_queued_job_runs_with_the_config_and_code_of_its_submission(
    shop: Path, tmp_path: Path, epochal: Command
) -> None:
    with forgetting(tmp_path):
        direct = epochal("run", "config.yaml", "optim.lr=0.07", "--variant", "long")
    assert direct.code == 0, direct.err
    added = epochal("queue", "add", "config.yaml", "optim.lr=0.07", "--variant", "long")
    assert added.code == 0, added.err
    write(shop / "config.yaml", "tag: edited\n")
    write(shop / "base.yaml", "nonsense: [\n")
    (shop / "shop" / "parts.py").write_text(EDITED)
    (job,) = Queue(shop / "runs").list_jobs()
    done = epochal("run-job", job.file, "--device", "cpu")
    assert done.code == 0, done.err
    first, second = run_folders(shop)
    assert weights(first) == weights(second)
    assert read(first / "result.json")["metrics"] == read(second / "result.json")["metrics"]
    before, after = read(first / "run.json"), read(second / "run.json")
    for key in ("project", "project_dir", "tag", "variant", "overrides", "config_path", "code"):
        assert after[key] == before[key], key
    assert after["attempts"][0]["code"] == before["attempts"][0]["code"]
    written, frozen = (one / "config" / "provenance.json" for one in (first, second))
    assert read(frozen) == read(written)
    assert (second / "code" / "project" / "shop" / "parts.py").read_text().startswith('"""Parts')


@pytest.mark.slow
def test_results_come_in_order_and_one_failure_touches_no_other(shop: Path, tmp_path: Path) -> None:
    text = (shop / "config.yaml").read_text()
    write(shop / "bad.yaml", text.replace("Points", "Stumbling").replace("tag: shop", "tag: bad"))
    words = ("config.yaml", "bad.yaml", "--devices", "cpu", "--per-device", "2", "train.for=1ep")
    done = run("-m", "epochal", "run", *words, cwd=shop)
    assert done.returncode == 1, done.stdout + done.stderr
    table = done.stdout.partition("\n\n")[2].splitlines()
    assert [line.split()[:3] for line in table[1:3]] == [
        ["1", "config.yaml", "finished"],
        ["2", "bad.yaml", "failed"],
    ]
    assert "KeyError: 'the shelf is empty'" in table[2]
    assert table[-1] == "2 runs: 1 finished, 1 failed"
    by_tag = {read(one / "run.json")["tag"]: one for one in run_folders(shop)}
    assert "val/acc" in (by_tag["shop"] / "logs" / "output.log").read_text()
    assert "the shelf is empty" in (by_tag["bad"] / "logs" / "output.log").read_text()
    assert list((shop / "runs" / ".epochal" / "jobs").iterdir()) == []
    with forgetting(tmp_path):
        alone = ep.run("config.yaml", overrides=["train.for=1ep"], device="cpu")
    assert alone.dir is not None
    assert weights(alone.dir) == weights(by_tag["shop"])


@pytest.mark.slow
def test_a_run_of_a_pool_may_have_several_processes_and_a_test(shop: Path) -> None:
    words = ("config.yaml", "--devices", "cpu", "--nproc", "2", "--then-test", "train.for=2st")
    done = run("-m", "epochal", "run", *words, cwd=shop)
    assert done.returncode == 0, done.stdout + done.stderr
    trained, tested = (read(one / "run.json") for one in run_folders(shop))
    assert (trained["runner"], tested["runner"]) == ("train", "test")
    assert trained["device"]["processes"] == tested["device"]["processes"] == 2
    shown = run("-m", "epochal", "show", "last", cwd=shop).stdout
    assert ", 2 processes that share each batch" in shown
    assert list((shop / "runs" / ".epochal" / "jobs").iterdir()) == []


HOOKS = '''
"""A hook that kills the worker once, after a checkpoint was written."""

import os
import signal
from pathlib import Path

import epochal as ep


class KillWorker(ep.Hook):
    def checkpoint_saved(self, run, path):
        flag = Path("flag")
        if not flag.exists():
            flag.write_text(str(run.step))
            os.kill(os.getppid(), signal.SIGKILL)
            while not run.stop_reason:  # until it notices that its worker is dead
                os.sched_yield()
'''


@pytest.mark.slow
def test_the_job_of_a_killed_worker_is_resumed_exactly(shop: Path, tmp_path: Path) -> None:
    write(shop / "shop" / "hooks.py", HOOKS)
    words = ("checkpoint.every=1ep", "train.for=3ep", 'hooks=[{"type": "shop.hooks.KillWorker"}]')
    added = run("-m", "epochal", "queue", "add", "config.yaml", *words, cwd=shop)
    assert added.returncode == 0, added.stderr
    parts = (shop / "shop" / "parts.py").read_text()
    (shop / "shop" / "parts.py").write_text(EDITED)
    worker = ("-m", "epochal", "queue", "work", "--devices", "cpu")
    assert Child(*worker, cwd=shop).end().returncode == -signal.SIGKILL
    (job,) = Queue(shop / "runs").list_jobs()
    assert job.state == "running"
    done = run(*worker, cwd=shop)
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = Queue(shop / "runs").list_jobs()
    assert (job.state, job.starts, job.failures) == ("finished", 2, 0)
    (folder,) = run_folders(shop)
    assert [one["attempt"] for one in read(folder / "run.json")["attempts"]] == [0, 1]
    (shop / "shop" / "parts.py").write_text(parts)
    with forgetting(tmp_path):
        alone = ep.run("config.yaml", overrides=words, device="cpu")
    assert alone.dir is not None
    assert weights(alone.dir) == weights(folder)
