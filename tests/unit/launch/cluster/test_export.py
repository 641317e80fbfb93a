"""Task files for Kubernetes and SkyPilot run the same command, whatever its words contain."""

from __future__ import annotations

import random
import shlex
from typing import Any

import pytest
from ruamel.yaml import YAML

from epochal.errors import ConfigError
from epochal.launch.cluster.export import export_task
from epochal.launch.launch_options import LaunchOptions

WORDS = ["epochal", "run", "config.yaml", "optim.lr=0.1", "--resume", "auto"]
FULL = LaunchOptions(
    gpus_per_node=1,
    cpus_per_node=4,
    memory_gb=32,
    image="ghcr.io/me/train:3",
    volume="project",
    accelerator="A100",
    setup=["pip install epochal", "nvidia-smi"],
)
HOSTILE = "'\"$(){}[]:#&*!|>%@`\\,?-~ =\t\n\x7f\x85\u2028\ufeffé0"


def load(text: str) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def expand(word: str) -> str:
    """What Kubernetes makes of a word of a command without references to variables."""
    return word.replace("$$", "$")


def test_kubernetes_gets_a_job_that_resumes_when_preempted() -> None:
    container = {
        "name": "run",
        "image": "ghcr.io/me/train:3",
        "command": WORDS,
        "workingDir": "/workspace",
        "env": [{"name": "OMP_NUM_THREADS", "value": "4"}],
        "resources": {
            "requests": {"cpu": "4", "memory": "32Gi"},
            "limits": {"nvidia.com/gpu": "1"},
        },
        "volumeMounts": [
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            {"name": "project", "mountPath": "/workspace"},
        ],
    }
    codes = {"containerName": "run", "operator": "In", "values": [75]}
    assert load(export_task("kubernetes", "My run_1", WORDS, FULL)) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "my-run-1"},
        "spec": {
            "backoffLimit": 3,
            "podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": codes}]},
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 60,
                    "containers": [container],
                    "volumes": [
                        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
                        {"name": "project", "persistentVolumeClaim": {"claimName": "project"}},
                    ],
                }
            },
        },
    }


def test_skypilot_gets_a_task() -> None:
    assert load(export_task("skypilot", "7", WORDS, FULL)) == {
        "name": "run-7",
        "workdir": ".",
        "num_nodes": 1,
        "resources": {
            "cpus": "4+",
            "memory": "32+",
            "accelerators": "A100:1",
            "image_id": "docker:ghcr.io/me/train:3",
        },
        "envs": {"OMP_NUM_THREADS": "4"},
        "setup": "pip install epochal\nnvidia-smi",
        "run": shlex.join(WORDS),
    }


def test_what_is_not_asked_for_is_left_out() -> None:
    spec = load(export_task("kubernetes", "x", WORDS, LaunchOptions(image="i")))["spec"]
    pod = spec["template"]["spec"]
    assert [one["name"] for one in pod["volumes"]] == ["shared-memory"]
    assert pod["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    task = load(export_task("skypilot", "x", WORDS, LaunchOptions()))
    assert (task["resources"], "setup" in task) == ({"cpus": "1+"}, False)


def test_processes_of_a_task_share_its_cores() -> None:
    options = LaunchOptions(image="i", accelerator="A100", gpus_per_node=4, cpus_per_node=8)
    job = load(export_task("kubernetes", "x", WORDS, options))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "OMP_NUM_THREADS", "value": "2"}]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    task = load(export_task("skypilot", "x", WORDS, options))
    assert (task["resources"]["accelerators"], task["envs"]) == (
        "A100:4",
        {"OMP_NUM_THREADS": "2"},
    )


def test_missing_values_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"launch\.image: missing; Kubernetes needs it"):
        export_task("kubernetes", "x", WORDS, LaunchOptions())
    with pytest.raises(ConfigError, match=r"launch\.accelerator: missing; SkyPilot needs it"):
        export_task("skypilot", "x", WORDS, LaunchOptions(gpus_per_node=1))


def test_200_hostile_overrides_reach_the_command_unchanged() -> None:
    chance = random.Random(0)
    for number in range(200):
        value = "".join(chance.choices(HOSTILE, k=chance.randrange(1, 12)))
        words = ["epochal", "run", "config.yaml", f"desc={value}"]
        job = load(export_task("kubernetes", "x", words, FULL))
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert [expand(word) for word in container["command"]] == words, (number, value)
        task = load(export_task("skypilot", "x", words, FULL))
        assert shlex.split(task["run"]) == words, (number, value)
