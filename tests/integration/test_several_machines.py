"""Runs on several machines, here launchers on one: equal bits, and machines that leave and join."""

from __future__ import annotations

import json
import signal
import socket
from typing import TYPE_CHECKING, Any

import pytest
import torch

from ranked import Project

if TYPE_CHECKING:
    from forked import Child

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


class Machines:
    """Launchers of one run; the first one hosts the store, and the last one has rank 0."""

    def __init__(self, project: Project, name: str, nnodes: str, *words: str) -> None:
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            endpoint = f"localhost:{probe.getsockname()[1]}"
        words = ("ranks.yaml", f"record.log_dir={name}", *words, "--nnodes", nnodes)
        self._words = ("run", *words, "--rdzv-endpoint", endpoint)
        self._project = project

    def add(self, *, wait: float = 0.0) -> Child:
        """Start one, which waits so many seconds for more than the least number."""
        return self._project.begin(*self._words, EPOCHAL_NODES_WAIT=str(wait))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("machines"))


def attempts(project: Project, name: str) -> list[dict[str, Any]]:
    found = json.loads((project.find(name) / "run.json").read_text())
    return list(found["attempts"])


def test_two_machines_give_the_bits_of_two_processes_also_after_a_kill(project: Project) -> None:
    done = project.train("whole", 2, "model.dropout=0.3")
    assert done.returncode == 0, done.stderr
    (project.folder / "faults" / "5-1").write_text("kill")
    machines = Machines(project, "two", "2", "model.dropout=0.3")
    ends = [one.end() for one in (machines.add(), machines.add())]
    assert [one.returncode for one in ends] == [0, 0], [one.stderr for one in ends]
    texts = "".join(one.stderr for one in ends)
    assert "2 processes on 2 of 2 machines; this one has rank 0" in texts
    assert "rank 1 was killed by SIGKILL at step 5; starting again" in texts
    assert texts.count("the run has ended: finished (max_epochs)") == 1
    assert project.results("two") == project.results("whole")
    project.take_samples()


def test_run_ends_on_the_machines_that_are_left(project: Project) -> None:
    (project.folder / "faults").mkdir(exist_ok=True)
    (project.folder / "faults" / "7-0").write_text("lose")
    machines = Machines(project, "left", "1:2")
    first, second = machines.add(wait=60), machines.add(wait=60)  # both are there at the start
    ends = first.end(), second.end()
    assert sorted(one.returncode for one in ends) == [-signal.SIGKILL, 0], [
        one.stderr for one in ends
    ]
    assert not any((project.folder / "faults").iterdir())
    (text,) = (one.stderr for one in ends if one.returncode == 0)
    assert "2 processes on 2 of 2 machines" in text
    assert "1 process on 1 of 2 machines; this one has rank 0" in text
    assert len(attempts(project, "left")) >= 2  # one more if the lost machine still seemed alive
    samples = project.take_samples()
    done = project.train("alone", 1)
    assert done.returncode == 0, done.stderr
    assert samples == project.take_samples()
    for name, tensor in project.weights("alone").items():
        torch.testing.assert_close(project.weights("left")[name], tensor, atol=1e-6, rtol=1e-5)


def read_until(child: Child, text: str) -> None:
    for line in child.stdout:
        if text in line:
            return
    raise AssertionError(child.end().stderr)


def test_machine_joins_and_leaves_while_the_other_continues(project: Project) -> None:
    machines = Machines(project, "joined", "1:2", "train.for=100000st")
    first = machines.add()
    read_until(first, "loss: ")
    second = machines.add()
    read_until(second, "processes: 2, which share each batch")
    read_until(second, "loss: ")
    second.signal(signal.SIGTERM)
    assert second.end().returncode == 75
    read_until(first, "resumed")
    read_until(first, "loss: ")
    first.signal(signal.SIGTERM)
    done = first.end()
    assert done.returncode == 75, done.stderr
    assert done.stderr.count("machines have joined or left; starting again") == 2
    assert len(attempts(project, "joined")) == 3
    project.take_samples()
