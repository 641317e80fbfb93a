"""Task files for systems that start containers: Kubernetes and SkyPilot."""

from __future__ import annotations

import io
import re
import shlex
from typing import TYPE_CHECKING, Any, Literal

from ruamel.yaml import YAML

from epochal.errors import PREEMPTED_EXIT_CODE, ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.launch.launch_options import LaunchOptions

System = Literal["kubernetes", "skypilot"]

_WORK_DIR = "/workspace"
_GRACE_SECONDS = 60
_MAX_FAILURES = 3
_NAME_LENGTH = 50


def export_task(system: System, name: str, words: Sequence[str], options: LaunchOptions) -> str:
    """The task file of a system, as YAML; the task runs the command ``words``.

    Raises:
        ConfigError: The section ``launch`` lacks what the system needs.
    """
    make = {"kubernetes": _to_kubernetes, "skypilot": _to_skypilot}[system]
    yaml, text = YAML(), io.StringIO()
    yaml.default_flow_style = False
    yaml.allow_unicode = False  # some of it counts as a line break
    yaml.width = 1_000_000  # no line breaks inside of commands
    yaml.dump(make(_to_label(name), words, options), text)
    return text.getvalue()


def _to_kubernetes(name: str, words: Sequence[str], options: LaunchOptions) -> dict[str, Any]:
    if options.image is None:
        hint = "write launch: {image: registry/name:tag}, with Epochal and torch in it"
        raise ConfigError(Problem("launch.image", "missing; Kubernetes needs it", hint=hint))
    amounts = {"cpu": str(options.num_cpus)}
    amounts |= {"memory": f"{options.memory_gb}Gi"} if options.memory_gb else {}
    gpus = {"nvidia.com/gpu": str(options.gpus_per_node)} if options.gpus_per_node else {}
    container: dict[str, Any] = {
        "name": "run",
        "image": options.image,
        # Kubernetes expands $(NAME) in commands, and $$ is one dollar.
        "command": [word.replace("$", "$$") for word in words],
        "workingDir": _WORK_DIR,
        "env": [{"name": "OMP_NUM_THREADS", "value": str(options.num_threads)}],
        "resources": {"requests": amounts, "limits": gpus} if gpus else {"requests": amounts},
    }
    # Containers have 64 MB of shared memory, too little for workers of loaders and for NCCL.
    container["volumeMounts"] = [{"name": "shared-memory", "mountPath": "/dev/shm"}]
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "containers": [container],
        "volumes": [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}],
    }
    if options.volume is not None:
        container["volumeMounts"].append({"name": "project", "mountPath": _WORK_DIR})
        claim = {"claimName": options.volume}
        pod["volumes"].append({"name": "project", "persistentVolumeClaim": claim})
    codes = {"containerName": "run", "operator": "In", "values": [PREEMPTED_EXIT_CODE]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "backoffLimit": _MAX_FAILURES,
            # A preempted run is no failure: its pod is replaced, and the run resumes.
            "podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": codes}]},
            "template": {"spec": pod},
        },
    }


def _to_skypilot(name: str, words: Sequence[str], options: LaunchOptions) -> dict[str, Any]:
    resources: dict[str, Any] = {"cpus": f"{options.num_cpus}+"}
    if options.memory_gb:
        resources["memory"] = f"{options.memory_gb}+"
    if options.gpus_per_node and options.accelerator is None:
        hint = "write launch: {accelerator: A100}; `sky show-gpus` lists them"
        raise ConfigError(Problem("launch.accelerator", "missing; SkyPilot needs it", hint=hint))
    if options.gpus_per_node:
        resources["accelerators"] = f"{options.accelerator}:{options.gpus_per_node}"
    if options.image is not None:
        resources["image_id"] = f"docker:{options.image}"
    task: dict[str, Any] = {"name": name, "workdir": ".", "num_nodes": 1, "resources": resources}
    task["envs"] = {"OMP_NUM_THREADS": str(options.num_threads)}
    if options.setup:
        task["setup"] = "\n".join(options.setup)
    return task | {"run": shlex.join(words)}


def _to_label(name: str) -> str:
    """A name as both systems accept it: small letters, digits and hyphens."""
    label = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_NAME_LENGTH].strip("-")
    return label if label[:1].isalpha() else f"run-{label}".strip("-")
