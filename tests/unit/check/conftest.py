"""Small projects on disk for the tests of signatures and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from epochal.check import CheckReport, Signature, check, read_signature
from epochal.check.values.checker import ConfigChecker
from epochal.config import load
from epochal.registry import Project, Registry

if TYPE_CHECKING:
    from collections.abc import Callable


TASK = """
    import epochal as ep

    class Shapes(ep.Task):
        def batch_forward(self, model, batch): return {"out": model(batch)}
        def batch_loss(self, out, batch): return {"loss": (out["out"].mean(), 1)}
        def batch_metric(self, out, batch): return {"acc": (out["out"].mean(), 1)}
"""
BARE_TASK = """
import epochal as ep

class Shapes(ep.Task):
    def batch_forward(self, model, batch): ...
    def batch_loss(self, out, batch): return {"loss": (1, 1), "aux": (2, 1)}
"""
MODEL = """
    from torch import nn

    class Mlp(nn.Module):
        def __init__(self, classes: int, width: int = 64, act: nn.Module | None = None): ...
"""
GOOD: dict[str, Any] = {
    "task": {"type": "user.task.Shapes"},
    "model": {"type": "user.model.Mlp", "classes": 3},
    "optim": {"type": "AdamW", "lr": 1e-3},
}


@pytest.fixture
def signature_of(write_files) -> Callable[..., Signature]:
    """The signature of ``m.<name>`` in a module with this text."""

    def read(text: str, name: str, *, kind: str = "model") -> Signature:
        registry = Registry(Project(write_files({"m.py": text})))
        return read_signature(registry.find(kind, f"m.{name}"), registry.finder)

    return read


@pytest.fixture
def user_registry(write_files) -> Registry:
    return Registry(Project(write_files({"user/task.py": TASK, "user/model.py": MODEL}), (), "p"))


@pytest.fixture
def checker(user_registry: Registry) -> ConfigChecker:
    return ConfigChecker(user_registry)


@pytest.fixture
def check_dict(user_registry: Registry) -> Callable[..., CheckReport]:
    """Check the good config with some sections replaced; ``None`` leaves one out."""

    def run(*, runner: str | None = None, **sections: Any) -> CheckReport:
        merged = {name: part for name, part in (GOOD | sections).items() if part is not None}
        return check(load(merged), user_registry, runner=runner)

    return run


@pytest.fixture
def check_task(write_files) -> Callable[..., CheckReport]:
    """Check the good config with a task that has these further methods."""

    def run(methods: str = "", **sections: Any) -> CheckReport:
        body = "".join(f"    {line}\n" for line in methods.splitlines())
        folder = write_files({"user/model.py": MODEL, "user/task.py": BARE_TASK + body})
        return check(load(GOOD | sections), Registry(Project(folder)))

    return run
