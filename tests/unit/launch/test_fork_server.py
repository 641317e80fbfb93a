"""A fork server starts commands that behave like new processes, and touches nothing else."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from epochal.launch.child_process import start_child
from epochal.launch.fork_server import ForkServer, _is_subreaper, can_fork

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from epochal.launch.fork_server import ForkedProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux adopts processes")

STATE = """
import json, os, random, signal, sys, threading

def describe(number):
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:  # of the listing itself
        return ""

print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": list(sys.flags),
    "cwd": os.getcwd(), "environment": dict(os.environ), "name": __name__, "package": __package__,
    "spec": __spec__.name, "main": sys.modules["__main__"].__file__, "parent": os.getppid(),
    "is_group": os.getpgid(0) == os.getpid(), "session": os.getsid(0), "umask": os.umask(0o22),
    "files": sorted(describe(int(name)) for name in os.listdir("/proc/self/fd")),
    "signals": {str(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
    "main_thread": threading.current_thread() is threading.main_thread(),
    "out": [sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering],
    "error": [sys.stderr.encoding, sys.stderr.errors, sys.stderr.line_buffering],
    "input": sys.stdin.read(),
}), flush=True)
import numpy.random
print(random.random(), numpy.random.random(), file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "state.py").write_text(STATE)
    return tmp_path


def variables(folder: Path, **more: str) -> dict[str, str]:
    paths = (str(folder), os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


@pytest.fixture
def server(folder: Path) -> Iterator[ForkServer]:
    made = ForkServer(["random", "numpy.random"], variables(folder), cwd=folder)
    yield made
    made.close()


def command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", *words]


def fork(
    server: ForkServer, folder: Path, *words: str, log: str = "log", keep: tuple[int, ...] = ()
) -> ForkedProcess:
    environment = variables(folder, CUDA_VISIBLE_DEVICES="7")
    with (folder / log).open("ab") as output:
        pending = server.start(
            command(*words), environment, cwd=folder, output=output, keep_open=keep
        )
    select.select([pending._reply], [], [])
    found = pending.find()
    assert found is not None
    return found


def end(process: ForkedProcess) -> int:
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    code = process.poll()
    assert code is not None
    return code


def test_a_forked_process_has_the_state_of_a_new_one(server: ForkServer, folder: Path) -> None:
    words, kept = ("state", "a b", "--c=é"), os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    for log in ("first", "second"):
        assert end(fork(server, folder, *words, log=log, keep=(kept,))) == 3
    environment = variables(folder, CUDA_VISIBLE_DEVICES="7")
    with (folder / "new").open("ab") as output:
        child = start_child(
            command(*words), environment, cwd=folder, output=output, keep_open=[kept]
        )
    assert child.wait() == 3
    os.close(kept)
    states: dict[str, dict[str, Any]] = {}
    numbers: set[str] = set()
    for name in ("first", "second", "new"):
        state, drawn = (folder / name).read_text().splitlines()
        states[name] = json.loads(state.replace(str(folder / name), "LOG"))
        states[name]["files"].sort()
        numbers.update(drawn.split())
    for name in ("first", "second"):
        assert states[name] == states["new"], name
    assert len(numbers) == 6  # each has its own random numbers
    assert not _is_subreaper()  # this process adopts nothing any more


def test_exit_codes_and_signals_arrive_at_the_process_that_asked(
    server: ForkServer, folder: Path
) -> None:
    endings = {
        "import os; os._exit(5)": 5,
        "import ctypes; ctypes.string_at(0)": -signal.SIGSEGV,
        "raise RuntimeError('failed')": 1,
        "pass": 0,
    }
    for number, (code, expected) in enumerate(endings.items()):
        (folder / f"ending{number}.py").write_text(code)
        assert end(fork(server, folder, f"ending{number}")) == expected, code
    (folder / "waiting.py").write_text("import signal\nwhile True: signal.pause()")
    first, second = (fork(server, folder, "waiting") for _ in range(2))
    first.send_signal(signal.SIGTERM)
    assert end(first) == -signal.SIGTERM
    assert second.poll() is None
    first.send_signal(signal.SIGTERM)  # it has ended, so nothing happens
    os.killpg(second.pid, signal.SIGKILL)
    assert end(second) == -signal.SIGKILL
    assert "RuntimeError: failed" in (folder / "log").read_text()


def test_a_process_outlives_its_server_and_the_next_one_cannot_be_started(
    server: ForkServer, folder: Path
) -> None:
    os.mkfifo(folder / "gate")
    (folder / "late.py").write_text("open('gate').read(); raise SystemExit(4)")
    process = fork(server, folder, "late")
    server.close()
    with pytest.raises(OSError):  # noqa: PT011 - of the socket
        fork(server, folder, "late")
    (folder / "gate").write_text("go")
    assert end(process) == 4


def test_a_server_that_cannot_import_or_fork_says_so(folder: Path) -> None:
    (folder / "threads.py").write_text(
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    (folder / "broken.py").write_text("raise RuntimeError")
    (folder / "fine.py").write_text("pass")
    for name in ("threads", "broken"):
        server = ForkServer([name], variables(folder), cwd=folder)
        with pytest.raises((ChildProcessError, BrokenPipeError)):
            end(fork(server, folder, "fine"))
        server.close()
    server = ForkServer(["no_such_module"], variables(folder), cwd=folder)
    assert end(fork(server, folder, "fine")) == 0
    server.close()


def test_a_changed_module_is_imported_again(folder: Path) -> None:
    (folder / "library.py").write_text("VERSION = 1")
    (folder / "reader.py").write_text("import library; raise SystemExit(library.VERSION)")
    server = ForkServer(["library"], variables(folder), cwd=folder)
    assert end(fork(server, folder, "reader")) == 1
    (folder / "library.py").write_text("VERSION = 1 + 1  # updated")
    assert [end(fork(server, folder, "reader")) for _ in range(2)] == [2, 2]
    server.close()


OWNER = """
import os, signal, sys
from pathlib import Path
from epochal.launch.fork_server import ForkServer
folder = Path(sys.argv[1])
server = ForkServer(["held"], os.environ, cwd=folder)
with open(os.devnull, "wb") as output:
    words = [sys.executable, "-P", "-m", "saving", str(folder / "pipe")]
    pending = server.start(words, os.environ, cwd=folder, output=output)
while pending.find() is None: os.sched_yield()
while True: signal.pause()
"""
SAVING = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (os.write(fd, b"saved"), os._exit(75)))
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(fd, b"ready")
while True: signal.pause()
"""


def test_server_and_processes_end_with_the_process_that_asked(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "saving.py").write_text(SAVING)
    (folder / "held.py").write_text("import os; os.open('pipe', os.O_WRONLY)")
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder)], env=variables(folder))
    with (folder / "pipe").open("rb", buffering=0) as heard:
        assert heard.read(5) == b"ready"
        owner.send_signal(signal.SIGKILL)
        assert owner.wait() == -signal.SIGKILL
        assert heard.read(5) == b"saved"
        assert heard.read(1) == b""  # neither of them holds the pipe any more


def test_only_modules_of_an_isolated_python_can_be_forked() -> None:
    assert can_fork(command("epochal", "run-job", "file"))
    assert not can_fork([sys.executable, "-m", "epochal"])
    assert not can_fork(["/another/python", "-P", "-m", "epochal"])
    assert not can_fork([sys.executable, "-S", "-c", "pass"])
