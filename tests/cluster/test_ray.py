"""Jobs on a real Ray cluster with several nodes: they run, are stopped, and survive a lost node."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from epochal.launch.queue.queue import Queue
from small_project import run_folders, write, write_shop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NODE = "SHOP_NODE"
HOOKS = '''
"""A hook that holds its run after the first checkpoint, until the run is stopped or killed."""

import os
import select
from pathlib import Path

import epochal as ep


class Hold(ep.Hook):
    def checkpoint_saved(self, run, path):
        flag = Path("held")
        if not flag.exists():
            flag.with_suffix(".new").write_text(os.environ["SHOP_NODE"])
            flag.with_suffix(".new").rename(flag)
            while not run.stop_reason:
                select.select([], [], [], 0.05)
'''
WORDS = ("config.yaml", "checkpoint.every=1ep", "train.for=3ep", "launch.gpus_per_node=1")
HELD = (*WORDS, 'hooks=[{"type": "shop.hooks.Hold"}]')


class RayNodes:
    """A cluster of a head without resources and nodes with one logical GPU each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "num_gpus": 0})
        self.nodes: dict[str, Any] = {}

    def add(self, name: str) -> None:
        self.nodes[name] = self.cluster.add_node(num_cpus=1, num_gpus=1, env_vars={NODE: name})

    def remove(self, name: str) -> None:
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    made = RayNodes()
    made.add("a")
    made.add("b")
    yield made
    made.cluster.shutdown()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = write_shop(tmp_path / "shop")
    write(folder / "shop" / "hooks.py", HOOKS)
    return folder


def start(nodes: RayNodes, shop: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "epochal", *words],
        cwd=shop,
        env=os.environ | {"RAY_ADDRESS": nodes.cluster.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(nodes: RayNodes, shop: Path, *words: str) -> str:
    child = start(nodes, shop, *words)
    out, _ = child.communicate()
    assert child.returncode == 0, out
    return out


def wait_for(path: Path, child: subprocess.Popen[str]) -> str:
    while not path.exists():
        assert child.poll() is None, child.communicate()[0]
        select.select([], [], [], 0.05)
    return path.read_text()


def weights(folder: Path) -> bytes:
    return (folder / "checkpoints" / "final.safetensors").read_bytes()


def test_a_run_continues_bit_for_bit_on_another_node_when_its_node_is_lost(
    nodes: RayNodes, shop: Path
) -> None:
    run(nodes, shop, "queue", "add", *HELD, "--device", "cpu")
    worker = start(nodes, shop, "queue", "work", "--on", "ray")
    name = wait_for(shop / "held", worker)
    nodes.remove(name)
    out, _ = worker.communicate()
    nodes.add(name)
    assert worker.returncode == 0, out
    (job,) = Queue(shop / "runs").list_jobs()
    assert (job.state, job.starts, job.failures, job.device) == ("finished", 2, 0, "ray")
    (folder,) = run_folders(shop)
    attempts = json.loads((folder / "run.json").read_text())["attempts"]
    assert [one["attempt"] for one in attempts] == [0, 1]
    assert "its node is gone" in (folder / "logs" / "output.log").read_text()
    run(nodes, shop, "run", *HELD, "--device", "cpu")
    first, second = run_folders(shop)
    assert weights(first) == weights(second)


def test_launch_runs_jobs_side_by_side_on_the_nodes_and_says_how_they_ended(
    nodes: RayNodes, shop: Path
) -> None:
    text = (shop / "config.yaml").read_text()
    write(shop / "bad.yaml", text.replace("Points", "Stumbling").replace("tag: shop", "tag: bad"))
    words = ("config.yaml", "bad.yaml", "launch.on=ray", "launch.gpus_per_node=1", "--device=cpu")
    dry = run(nodes, shop, "launch", *words, "--dry-run")
    assert "2 runs, 2 at once; nothing was started" in dry
    assert "  ray num_gpus=1 num_cpus=1: " in dry
    child = start(nodes, shop, "launch", *words)
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
    nodes: RayNodes, shop: Path
) -> None:
    run(nodes, shop, "queue", "add", *HELD, "--device", "cpu")
    for number, code in ((signal.SIGTERM, 75), (signal.SIGKILL, -signal.SIGKILL)):
        worker = start(nodes, shop, "queue", "work", "--on", "ray")
        wait_for(shop / "held", worker)
        worker.send_signal(number)
        out, _ = worker.communicate()
        assert worker.returncode == code, (number, out)
        (shop / "held").unlink()
    worker = start(nodes, shop, "queue", "work", "--on", "ray")
    wait_for(shop / "held", worker)
    out = run(nodes, shop, "queue", "remove", "1")
    assert out == "job 1 saves and ends\n"
    out, _ = worker.communicate()
    (job,) = Queue(shop / "runs").list_jobs()
    assert (job.state, job.starts, job.failures) == ("removed", 3, 0), out
    (folder,) = run_folders(shop)
    assert len(json.loads((folder / "run.json").read_text())["attempts"]) == 3
