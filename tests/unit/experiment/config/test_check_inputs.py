"""Tests of the one path from a config to the inputs of a run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import epochal as ep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from small_project import Command


def test_every_way_to_run_a_config_loads_it_once_and_checks_it_once(
    shop: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def count(module: str, name: str, what: str) -> None:
        function: Callable[..., Any] = getattr(import_module(module), name)

        def counting(*args: Any, **options: Any) -> Any:
            calls.append(what)
            return function(*args, **options)

        monkeypatch.setattr(import_module(module), name, counting)

    count("epochal.config.load", "read_source", "load")
    count("epochal.check.config", "ConfigChecker", "check")
    choices: Any = {"no_file": True, "fast": True}
    words = ["config.yaml", "--no-file", "--fast"]
    ways: dict[str, Callable[[], Any]] = {
        "epochal run": lambda: epochal("run", *words, "seed=1"),
        "ep.run": lambda: ep.run("config.yaml", **choices),
        "Experiment.fit": lambda: ep.Experiment("config.yaml", choices=choices).fit(),
        "Experiment.test": lambda: ep.Experiment("config.yaml", choices=choices).test(),
        "a script": lambda: ep.Experiment(ep.parse_args(["-c", *words])).run(),
    }
    for way, run in ways.items():
        calls.clear()
        run()
        assert sorted(calls) == ["check", "load"], way
