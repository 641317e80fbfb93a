"""Fixtures of all tests: one thread, no colour, nothing left from other tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.assertion import rewrite
from hypothesis import HealthCheck, settings
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

# Before Epochal is imported: a file survives the death of a process without it, and
# tests/faults/power.py plays power losses.
os.fsync = os.fstat  # type: ignore[assignment]

from epochal.records.folder import machine  # noqa: E402
from odd_files import OddFiles  # noqa: E402
from small_project import Command, command, forgetting, write_shop  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

_leaves_no_bytecode = sys.dont_write_bytecode
sys.dont_write_bytecode = (
    False  # until all test files are read, which takes a third of the time then
)
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Some virtual machines offer AMX and then kill the process that multiplies bf16 matrices with it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.pop("FORCE_COLOR", None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background, where tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, where tests close a terminal
# A busy machine is no failure.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

_parse = YAML.parse


@lru_cache(maxsize=2000)
def _parse_short(text: str) -> tuple[Any, ...]:
    return tuple(_parse(YAML(typ="safe", pure=True), text))


def _parse_once(self: YAML, stream: Any) -> Any:
    """Remember the events of short texts: tests read the same configs thousands of times."""
    is_short = isinstance(stream, str) and len(stream) < 4_000
    with suppress(YAMLError, ValueError, OverflowError):  # reported after the events before it
        if is_short and self.typ == ["safe"] and self.pure:
            return iter(_parse_short(stream))
    return _parse(self, stream)


YAML.parse = _parse_once
machine.package_versions = cache(machine.package_versions)

_TOGETHER = {
    "tests/browser/": "browser",
    "tests/integration/test_collectives.py": "ranks",
    "tests/integration/test_several_machines.py": "machines",
    "tests/integration/test_several_processes.py": "processes",
    "tests/integration/test_sharded_training.py": "shards",
    "tests/integration/test_shared_training.py": "ranks",
    "tests/integration/test_kills.py": "server of runs",
    "tests/integration/test_trackers.py": "trackers",
    "tests/test_architecture.py": "parsed modules",
    "tests/unit/check/export/test_schema.py": "schema",
    "tests/unit/hooks/test_mlflow.py": "trackers",
    "tests/unit/hooks/test_wandb.py": "trackers",
}
"""Tests that share something which takes seconds to start or import, by path."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let the second worker rewrite new test files from the last one, beside the first worker."""
    if getattr(session.config, "workerinput", {}).get("workerid") != "gw1":
        return
    state = session.config.stash[rewrite.assertstate_key]
    for path in sorted(Path(__file__).parent.rglob("test_*.py"), reverse=True):
        cached = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if cached.exists():  # the workers have met
            return
        source, code = rewrite._rewrite_test(path, session.config)
        cached.parent.mkdir(exist_ok=True)
        rewrite._write_pyc(state, code, source, cached)


def pytest_collection_finish() -> None:
    """Keep the modules of all tests out of every later garbage collection."""
    sys.dont_write_bytecode = _leaves_no_bytecode
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 100)  # the youngest objects as often as before, the others rarely
    if loaders := sys.modules.get("torch.utils.data._utils"):
        # A loader that ends as garbage cannot reach its workers any more, and waits for them.
        loaders.MP_STATUS_CHECK_INTERVAL = 0.2  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Send each test to the next free worker, but those of a group to the same one."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            groups = (group for path, group in _TOGETHER.items() if nodeid.startswith(path))
            return next(groups, nodeid)

    return Scheduler(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the texts that tests recorded as ``counted``, and what was left out."""
    reports = terminalreporter.getreports("passed")
    lines = [text for one in reports for name, text in one.user_properties if name == "counted"]
    if lines:
        terminalreporter.section("counted")
        for line in dict.fromkeys(lines):
            terminalreporter.write_line(str(line))
    if "not long" in terminalreporter.config.option.markexpr:
        terminalreporter.write_line(
            "left out: make test-long (processes that are killed and started again), "
            "make torture, make cluster-test"
        )


@pytest.fixture(autouse=True)
def registered_names_are_forgotten() -> Iterator[None]:
    """Remove the names that a test registered."""
    from epochal import registry

    before = {kind: dict(names) for kind, names in registry.REGISTERED.items()}
    yield
    registry.REGISTERED.clear()
    registry.REGISTERED.update(before)


@pytest.fixture(scope="session", autouse=True)
def home_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the key that signs mail and jobs, and the leases of devices, out of the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("EPOCHAL_LEASES_DIR", str(tmp_path_factory.mktemp("leases") / "here"))
        yield


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a working project, which is also the current folder."""
    folder = write_shop(tmp_path / "project")
    monkeypatch.chdir(folder)
    with forgetting(tmp_path):
        yield folder


@pytest.fixture
def epochal(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs ``epochal`` with the given words in this process."""
    return command(capsys)


@pytest.fixture
def older_objects_are_kept() -> None:
    """Make the garbage collections of a test quick: those of older objects take half a second."""
    gc.freeze()


@pytest.fixture
def dead_workers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let torch install its handler of SIGCHLD, which a run with a dead worker replaces for good.

    Without it a loader notices only after 5 seconds.
    """
    from torch.utils.data._utils import signal_handling

    monkeypatch.setattr(signal_handling, "_SIGCHLD_handler_set", False)
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.fixture
def odd_file(tmp_path_factory: pytest.TempPathFactory) -> OddFiles:
    """Puts something that is no regular file at a path."""
    return OddFiles(tmp_path_factory.mktemp("odd"))


@pytest.fixture
def command_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put ``epochal`` on the PATH, so that messages can name it."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
