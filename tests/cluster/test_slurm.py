"""Real runs through submitit: on its local executor, and on Slurm where this machine has it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.held_run import WORDS, add_hook, attempts, run, start, wait_until_held, weights
from epochal.experiment.config.check_file import check_file
from epochal.experiment.config.freeze_jobs import freeze_configs
from epochal.launch.cluster.node_job import restart_preempted
from epochal.launch.cluster.slots import ClusterSlots
from epochal.launch.pool.run_jobs import run_jobs
from epochal.launch.queue.queue import Queue
from small_project import run_folders

if TYPE_CHECKING:
    from epochal.launch.pool.pool import Pool

pytest.importorskip("submitit")
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


def count_nodes() -> int:
    """How many nodes the Slurm of this machine has; 0 without one."""
    if shutil.which("sinfo") is None:
        return 0
    found = subprocess.run(
        ["sinfo", "--noheader", "--format=%D"], capture_output=True, text=True, check=False
    )
    return sum(map(int, found.stdout.split())) if found.returncode == 0 else 0


def test_a_preempted_run_is_requeued_by_submitit_and_resumes_bit_for_bit(shop: Path) -> None:
    from epochal.launch.cluster.slurm_executor import SlurmExecutor

    add_hook(shop)
    overrides = [*WORDS[1:], "launch.gpus_per_node=0"]
    (config,) = check_file(Path(WORDS[0]), overrides, {}).checked
    jobs = freeze_configs([config], overrides=overrides, command="test")
    warned = list[int]()

    def preempt(pool: Pool) -> None:
        if not warned and (shop / "held").exists():
            warned.append(int((shop / "held").read_text()))
            os.kill(warned[0], signal.SIGUSR2)

    slots = ClusterSlots("slurm")
    executor = SlurmExecutor(cluster="local")
    result = run_jobs(jobs, executor, slots, show=preempt, restart=restart_preempted)
    assert (result.exit_code, len(warned)) == (0, 1)
    (folder,) = run_folders(shop)
    assert attempts(folder) == [0, 1]
    run(shop, "run", *WORDS, "--device", "cpu", OMP_NUM_THREADS="1")
    first, second = run_folders(shop)
    assert weights(first) == weights(second)


def test_two_nodes_are_requeued_together_and_resume_bit_for_bit(shop: Path) -> None:
    from epochal.launch.cluster.slurm_executor import SlurmExecutor

    add_hook(shop)
    overrides = [*WORDS[1:], "launch.gpus_per_node=0", "launch.nodes=2"]
    (config,) = check_file(Path(WORDS[0]), overrides, {}).checked
    jobs = freeze_configs([config], overrides=overrides, command="test")
    warned = list[int]()

    def preempt(pool: Pool) -> None:
        if not warned and (shop / "held").exists():
            launcher = int((shop / "held").read_text())  # of the main process
            text = Path(f"/proc/{launcher}/stat").read_text()
            warned.append(int(text.rpartition(")")[2].split()[1]))  # the task of Slurm
            os.kill(warned[0], signal.SIGUSR2)

    executor = SlurmExecutor(cluster="local")
    slots = ClusterSlots("slurm")
    result = run_jobs(jobs, executor, slots, show=preempt, restart=restart_preempted)
    assert (result.exit_code, len(warned)) == (0, 1)
    (folder,) = run_folders(shop)
    assert attempts(folder) == [0, 1]
    run(shop, "run", *WORDS, "--nproc", "2", "--device", "cpu", OMP_NUM_THREADS="1")
    first, second = run_folders(shop)
    assert weights(first) == weights(second)


@pytest.mark.skipif(count_nodes() == 0, reason="needs a running Slurm")
def test_slurm_requeues_a_run_that_outlives_its_worker(shop: Path) -> None:
    add_hook(shop)
    run(shop, "queue", "add", *WORDS, "launch.gpus_per_node=0")
    work = ("queue", "work", "--on", "slurm")
    worker = start(shop, *work)
    wait_until_held(shop, worker)
    worker.kill()
    worker.communicate()
    (job,) = Queue(shop / "runs").list_jobs()
    assert job.state == "running"
    worker = start(shop, *work)  # finds the Slurm job that still runs
    while Queue(shop / "runs").get(1).starts < 2:
        assert worker.poll() is None
    (number,) = subprocess.check_output(["squeue", "--noheader", "--format=%i"], text=True).split()
    subprocess.check_call(["scancel", "--signal=USR2", number])
    out, _ = worker.communicate()
    assert worker.returncode == 0, out
    facts = subprocess.check_output(["scontrol", "show", "job", number], text=True)
    assert " Restarts=1 " in facts
    (job,) = Queue(shop / "runs").list_jobs()
    assert (job.state, job.starts, job.failures) == ("finished", 2, 0)
    (folder,) = run_folders(shop)
    assert attempts(folder) == [0, 1]
    run(shop, "run", *WORDS, "--device", "cpu", OMP_NUM_THREADS="1")
    first, second = run_folders(shop)
    assert weights(first) == weights(second)


@pytest.mark.skipif(count_nodes() < 2, reason="needs a running Slurm with two nodes")
def test_slurm_requeues_a_run_on_two_nodes(shop: Path) -> None:
    add_hook(shop)
    run(shop, "queue", "add", *WORDS, "launch.gpus_per_node=0", "launch.nodes=2")
    worker = start(shop, "queue", "work", "--on", "slurm")
    wait_until_held(shop, worker)
    (number,) = subprocess.check_output(["squeue", "--noheader", "--format=%i"], text=True).split()
    subprocess.check_call(["scancel", "--signal=USR2", number])
    out, _ = worker.communicate()
    assert worker.returncode == 0, out
    (folder,) = run_folders(shop)
    assert attempts(folder) == [0, 1]
    run(shop, "run", *WORDS, "--nproc", "2", "--device", "cpu", OMP_NUM_THREADS="1")
    first, second = run_folders(shop)
    assert weights(first) == weights(second)
