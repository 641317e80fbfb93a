"""``epochal launch`` runs configs where they say, prints what would start, and exports tasks."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from ruamel.yaml import YAML

from epochal.launch.pool.gpus import Gpu
from small_project import Command, run_folders, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCHAL_LEASES_DIR", str(tmp_path / "leases" / "here"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_dry_run_prints_what_would_start_and_leaves_nothing(shop: Path, epochal: Command) -> None:
    words = ("config.yaml", "launch.gpus_per_node=0", "optim.lr=0.2", "--dry-run")
    done = epochal("launch", *words)
    assert done.code == 0, done.err
    title, folder, command, end = done.out.splitlines()
    assert "--nproc" not in command
    assert (title, folder) == ("1: config.yaml starts on cpu", f"  cd {shop}")
    assert f" {sys.executable} -P -m epochal run-job " in command
    assert "optim.lr" not in command
    assert end == "1 run, 1 at once; nothing was started"
    assert list((shop / "runs" / ".epochal" / "jobs").iterdir()) == []


def test_several_processes_of_a_run_share_this_machine(
    shop: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [Gpu(f"GPU-{index}", "card", lambda: (8, 8)) for index in range(2)]
    monkeypatch.setattr("epochal.launch.pool.devices.find_gpus", lambda: gpus)
    words = ("config.yaml", "launch.gpus_per_node=2", "--dry-run")
    done = epochal("launch", *words)
    assert done.out.startswith("1: config.yaml starts on cuda:0,1\n"), done.err
    done = epochal("launch", *words, "--device", "cpu")
    assert done.out.startswith("1: config.yaml starts on cpu\n"), done.err


@pytest.mark.long
def test_launch_on_this_machine_runs_the_config(shop: Path, epochal: Command) -> None:
    done = epochal("launch", "config.yaml", "launch.gpus_per_node=0", "train.for=1ep")
    assert done.code == 0, done.out + done.err
    (folder,) = run_folders(shop)
    assert "1 run: 1 finished" in done.out
    config = YAML(typ="safe").load((folder / "config" / "expanded.yaml").read_text())
    assert config["launch"]["gpus_per_node"] == 0


def test_mistakes_are_refused_with_their_place(
    shop: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "submitit", None)
    gpu = Gpu("GPU-0", "card", lambda: (8, 8))
    monkeypatch.setattr("epochal.launch.pool.devices.find_gpus", lambda: [gpu])
    text = (shop / "config.yaml").read_text()
    write(shop / "two.yaml", f"{text}launch: {{nodes: 2}}\n")
    write(shop / "pair.yaml", f"{text}launch: {{nproc_per_node: 2}}\n")
    write(shop / "ray.yaml", f"{text}launch: {{on: ray}}\n")
    write(shop / "wrong.yaml", f"{text}launch: {{on: rey, nodes: 0, time: 3ep, partitio: gpu}}\n")
    for words, expected in (
        (("two.yaml",), "launch.nodes: on: local trains on one machine, got 2\n  set in two"),
        (
            ("config.yaml", "launch.gpus_per_node=8"),
            "launch.gpus_per_node: needs 8 GPUs, and this machine has 1",
        ),
        (
            ("config.yaml", "pair.yaml", "launch.on=local"),
            "launch.nproc_per_node: another config says None, this one 2",
        ),
        (("config.yaml", "--device", "cuda:3"), "there is no GPU 'cuda:3': this machine has 1"),
        (
            ("ray.yaml", "launch.nodes=3:1"),
            "launch.nodes: the largest number comes last, got '3:1'",
        ),
        (
            ("ray.yaml", "launch.nodes=two"),
            "launch.nodes: must be a number of machines, or a range",
        ),
        (("ray.yaml", "launch.nodes=0:2"), "launch.nodes: must be at least 1, got '0:2'"),
        (("config.yaml", "launch.on=slurm", "launch.nodes=1:2"), "a Slurm job has a fixed number"),
        (("ray.yaml", "launch.nodes=2", "--export", "skypilot"), "an exported task trains on one"),
        (("ray.yaml",), "'ray' needs a package that is not installed: ray\n  pip install 'epoch"),
        (("config.yaml", "launch.on=slurm"), "'slurm' needs a package that is not installed"),
        (("config.yaml", "ray.yaml"), "another config says 'local', this one 'ray'"),
        (("ray.yaml", "--max-jobs", "0"), "--max-jobs: must be at least 1, got 0"),
        (("config.yaml", "--no-file"), "--no-file: results of a pool are read from its records"),
        (("config.yaml", "--gpus", "1"), "--gpus: the pool gives each run its device"),
        (("config.yaml", "--nnodes", "2"), "--nnodes: the pool gives each run its device"),
        (("wrong.yaml",), "launch.on: expected 'local' or 'ray' or 'slurm', got 'rey'"),
        (("wrong.yaml",), "launch.nodes: must be at least 1, got 0"),
        (("wrong.yaml",), "launch.time: must be a time, got '3ep'"),
        (("wrong.yaml",), "launch.partitio: unknown key 'partitio'"),
        (("config.yaml", "ray.yaml", "--export", "skypilot"), "--export: takes one config"),
        ((shop / "config.yaml", "--export", "skypilot"), "is not below it"),
    ):
        done = epochal("launch", *words)
        assert done.code == 78, words
        assert expected in done.err, words
    assert not (shop / "runs").exists() or run_folders(shop) == []


def test_an_exported_task_runs_the_same_config_with_the_same_options(
    shop: Path, epochal: Command
) -> None:
    options = ("--variant", "hot", "--desc", "a b", "--fast", "--export", "skypilot")
    done = epochal("launch", "config.yaml", "optim.lr=0.3", *options)
    assert done.code == 0, done.err
    assert YAML(typ="safe").load(done.out)["run"] == (
        "epochal run config.yaml optim.lr=0.3 --variant=hot '--desc=a b' --fast --resume auto"
    )
    done = epochal(
        *("launch", "config.yaml", "launch.gpus_per_node=4", "launch.accelerator=A100"),
        *("--then-test", "--export", "skypilot"),
    )
    assert (
        YAML(typ="safe")
        .load(done.out)["run"]
        .endswith("launch.accelerator=A100 --nproc=4 --then-test --resume auto")
    )
    words = ("launch.image=me/train:1", "--export", "kubernetes", "--output", "job.yaml")
    done = epochal("launch", "config.yaml", *words)
    assert done.out == "wrote job.yaml; start it with: kubectl create -f job.yaml\n"
    job = YAML(typ="safe").load((shop / "job.yaml").read_text())
    assert job["metadata"]["name"] == "shop"


def test_a_frozen_job_keeps_what_it_needs_on_a_cluster(shop: Path, epochal: Command) -> None:
    epochal("queue", "add", "config.yaml", "launch.cpus_per_node=4")
    (file,) = (shop / "runs" / ".epochal" / "jobs").glob("*/1.json")
    launch = json.loads(file.read_text())["launch"]
    assert (launch["cpus_per_node"], launch["time"]) == (4, "24h")


def test_devices_are_not_chosen_on_a_cluster(shop: Path, epochal: Command) -> None:
    done = epochal("queue", "work", "--on", "slurm", "--devices", "0")
    assert (done.code, done.err) == (
        78,
        "--devices: slurm gives each job its device\n  use --max-jobs for fewer at once\n",
    )
