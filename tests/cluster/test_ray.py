"""Jobs on a real Ray cluster with several nodes: they run, are stopped, and survive a lost node."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from cluster.held_run import (
    WORDS,
    add_hook,
    attempts,
    run,
    start,
    wait_until_held,
    weights,
)
from epochal.launch.queue.queue import Queue
from epochal.records.find import read_run
from small_project import run_folders, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

HELD = (*WORDS, "launch.gpus_per_node=1", "--device", "cpu")
WORK = ("queue", "work", "--on", "ray")


class RayNodes:
    """A cluster of a head without resources, and nodes with one logical GPU each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "num_gpus": 0})
        self.nodes: dict[str, Any] = {}

    def add(self, name: str) -> None:
        variables = {"SHOP_NODE": name}
        self.nodes[name] = self.cluster.add_node(num_cpus=1, num_gpus=1, env_vars=variables)

    def remove(self, name: str) -> None:
        """Lose a node: all its processes end at once, those that started others first."""
        node = self.nodes.pop(name)
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        for process in [raylet, *raylet.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    made = RayNodes()
    made.add("a")
    made.add("b")
    yield made
    made.cluster.shutdown()


@pytest.fixture(autouse=True)
def use_cluster(nodes: RayNodes, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", nodes.cluster.address)
    add_hook(shop)


def test_a_run_continues_bit_for_bit_on_another_node_when_its_node_is_lost(
    nodes: RayNodes, shop: Path
) -> None:
    run(shop, "queue", "add", *HELD)
    worker = start(shop, *WORK)
    name = wait_until_held(shop, worker)
    nodes.remove(name)
    out, _ = worker.communicate()
    nodes.add(name)
    assert worker.returncode == 0, out
    (job,) = Queue(shop / "runs").list_jobs()
    assert (job.state, job.starts, job.failures, job.device) == ("finished", 2, 0, "ray")
    (folder,) = run_folders(shop)
    assert attempts(folder) == [0, 1]
    assert "its node is gone" in (folder / "logs" / "output.log").read_text()
    run(shop, "run", *HELD)
    first, second = run_folders(shop)
    assert weights(first) == weights(second)


def test_a_run_on_two_nodes_resumes_with_the_same_bits_when_a_node_is_lost(
    nodes: RayNodes, shop: Path
) -> None:
    run(shop, "queue", "add", *HELD, "launch.nodes=2")
    worker = start(shop, *WORK)
    name = wait_until_held(shop, worker)
    nodes.remove(name)
    nodes.add(name)
    out, _ = worker.communicate()
    assert worker.returncode == 0, out
    (job,) = Queue(shop / "runs").list_jobs()
    # Ray may place it once more on a node that it does not know to be lost yet.
    assert (job.state, job.failures) == ("finished", 0), out
    assert job.starts > 1
    (folder,) = run_folders(shop)
    assert attempts(folder)[:2] == [0, 1]
    output = "".join(one.read_text() for one in (folder / "logs").glob("output*.log"))
    assert "2 processes on 2 of 2 machines" in output
    run(shop, "run", *HELD, "--nproc", "2", OMP_NUM_THREADS="1")
    first, second = run_folders(shop)
    assert weights(first) == weights(second)


def test_a_run_on_a_range_of_nodes_ends_on_those_that_are_left(nodes: RayNodes, shop: Path) -> None:
    words = ("launch", *HELD, "launch.on=ray", "launch.nodes=1:2")
    dry = run(shop, *words, "--dry-run")
    assert "ray 1:2 nodes (STRICT_SPREAD), on each: num_gpus=1 num_cpus=1: " in dry
    assert "--nnodes 1:2 --rdzv-endpoint FIRST_NODE:PORT" in dry
    launcher = start(shop, *words)
    name = wait_until_held(shop, launcher)
    nodes.remove(name)
    out, _ = launcher.communicate()
    nodes.add(name)
    assert launcher.returncode == 0, out
    (folder,) = run_folders(shop)
    assert read_run(folder).summary.status == "finished"
    assert len(attempts(folder)) > 1


SWEEP = """
sweep:
  method: grid
  space:
    optim.lr: [0.01, 0.02, 0.03, 0.04]
"""


def test_a_sweep_loses_and_doubles_no_trial_when_a_node_is_lost(
    nodes: RayNodes, shop: Path
) -> None:
    write(shop / "sweep.yaml", (shop / "config.yaml").read_text() + SWEEP)
    words = (*WORDS[1:], "launch.gpus_per_node=0")
    sweep = start(shop, "sweep", "sweep.yaml", *words, "--on", "ray")
    name = wait_until_held(shop, sweep)
    nodes.remove(name)
    out, _ = sweep.communicate()
    nodes.add(name)
    assert sweep.returncode == 0, out
    records = [read_run(folder) for folder in run_folders(shop)]
    assert [one.summary.status for one in records] == ["finished"] * 4, out
    rates = sorted(one.expanded["optim"]["lr"] for one in records)
    assert rates == [0.01, 0.02, 0.03, 0.04]
    assert sorted(map(len, (attempts(one.path) for one in records))) == [1, 1, 1, 2]


def test_launch_runs_jobs_side_by_side_on_the_nodes_and_says_how_they_ended(shop: Path) -> None:
    text = (shop / "config.yaml").read_text()
    write(shop / "bad.yaml", text.replace("Points", "Stumbling").replace("tag: shop", "tag: bad"))
    words = ("config.yaml", "bad.yaml", "launch.on=ray", "launch.gpus_per_node=1", "--device=cpu")
    dry = run(shop, "launch", *words, "--dry-run")
    assert "2 runs, 2 at once; nothing was started" in dry
    assert "  ray num_gpus=1 num_cpus=1: " in dry
    child = start(shop, "launch", *words)
    out, _ = child.communicate()
    assert child.returncode == 1, out
    assert "2 runs on ray" in out
    table = out.partition("\n\n")[2].splitlines()
    assert [line.split()[1:3] for line in table[1:3]] == [
        ["config.yaml", "finished"],
        ["bad.yaml", "failed"],
    ]
    assert "the shelf is empty" in table[2]


def test_a_stopped_worker_lets_its_run_save_and_a_killed_one_leaves_nothing_behind(
    shop: Path,
) -> None:
    run(shop, "queue", "add", *HELD, "launch.memory_gb=1", "train.for=6ep")
    for number, code in ((signal.SIGTERM, 75), (signal.SIGKILL, -signal.SIGKILL)):
        worker = start(shop, *WORK)
        wait_until_held(shop, worker)
        worker.send_signal(number)
        out, _ = worker.communicate()
        assert worker.returncode == code, (number, out)
        (shop / "held").unlink()
    worker = start(shop, *WORK)
    wait_until_held(shop, worker)
    assert run(shop, "queue", "remove", "1") == "job 1 saves and ends\n"
    out, _ = worker.communicate()
    (job,) = Queue(shop / "runs").list_jobs()
    assert (job.state, job.starts, job.failures) == ("removed", 3, 0), out
    (folder,) = run_folders(shop)
    assert attempts(folder) == [0, 1, 2]


def test_a_job_that_fits_on_no_node_waits_until_it_is_removed(shop: Path) -> None:
    run(shop, "queue", "add", *WORDS, "launch.cpus_per_node=64")
    worker = start(shop, *WORK)
    while Queue(shop / "runs").list_jobs("waiting"):
        assert worker.poll() is None
    run(shop, "queue", "remove", "1")
    out, _ = worker.communicate()
    assert "started   1: config.yaml on ray" in out
    (job,) = Queue(shop / "runs").list_jobs()
    assert (job.state, job.run_dir) == ("removed", None)
