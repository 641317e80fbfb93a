"""Runs of several processes: equal to one process, exact after faults, and never stuck."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from forked import Child, run
from ranked import Project

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def whole(project: Project) -> dict[str, Any]:
    """The results of an undisturbed run of two processes, with dropout."""
    done = project.train("whole", 2, "model.dropout=0.3")
    assert done.returncode == 0, done.stdout + done.stderr
    return project.results("whole")


def test_one_two_and_four_processes_train_alike(project: Project) -> None:
    found = {}
    for nproc in (1, 2, 4):
        done = project.train(f"alike{nproc}", nproc, "task.tokens=true")
        assert done.returncode == 0, done.stdout + done.stderr
        result = json.loads((project.find(f"alike{nproc}") / "result.json").read_text())
        found[nproc] = project.take_samples(), project.weights(f"alike{nproc}"), result["metrics"]
    samples, weights, metrics = found[1]
    for nproc in (2, 4):
        others, other_weights, other_metrics = found[nproc]
        assert others == samples, nproc
        for name, tensor in weights.items():
            torch.testing.assert_close(other_weights[name], tensor, atol=1e-6, rtol=1e-5)
        assert other_metrics == pytest.approx(metrics, rel=1e-5), nproc
    logs = project.find("alike4") / "logs"
    assert sorted(one.name for one in logs.glob("run*.log")) == [
        "run.log",
        *(f"run.rank{rank}.log" for rank in (1, 2, 3)),
    ]


def test_accumulated_steps_of_two_processes_equal_those_of_one(project: Project) -> None:
    words = ("optim.accumulate=2", "model.norm=false", "train.for=1ep", "task.tokens=true")
    for nproc in (1, 2):
        done = project.train(f"sum{nproc}", nproc, *words)
        assert done.returncode == 0, done.stdout + done.stderr
    for name, tensor in project.weights("sum1").items():
        torch.testing.assert_close(project.weights("sum2")[name], tensor, atol=1e-6, rtol=1e-5)
    project.take_samples()


METRICS = """
  - {type: auroc, inputs: {logits: out.logits, target: batch.y}, on: [train, val]}
  - {type: f1, inputs: {logits: out.logits, target: batch.y}}
  - {type: torchmetrics.MatthewsCorrCoef, task: multiclass, num_classes: 2, name: phi,
     inputs: {preds: out.logits, target: batch.y}}
monitor"""


@pytest.mark.long
def test_metrics_and_chains_of_three_processes_equal_those_of_one(project: Project) -> None:
    config = (project.folder / "ranks.yaml").read_text().replace("\nmonitor", METRICS)
    (project.folder / "metrics.yaml").write_text(config)
    found = {}
    for nproc in (1, 3):
        words = ("run", "metrics.yaml", f"record.log_dir=metrics{nproc}", "task.chain=true")
        done = project.run(*words, "--nproc", str(nproc), "train.for=2ep")
        assert done.returncode == 0, done.stdout + done.stderr
        result = json.loads((project.find(f"metrics{nproc}") / "result.json").read_text())
        found[nproc] = project.take_samples(), result["metrics"]
        assert "every process computes all batches" not in done.stdout, nproc
    samples, metrics = found[1]
    assert {"val/auroc", "val/f1", "val/phi", "train/epoch/auroc"} <= {*metrics}
    assert found[3][0] == samples
    assert found[3][1] == pytest.approx(metrics, rel=1e-4)
    for step in range(4):
        assert len(samples[step]) == 5, step


def test_error_of_one_process_ends_all_with_one_message(project: Project) -> None:
    done = project.train("broken", 2, faults={"3-1": "raise"})
    assert done.returncode == 1
    assert done.stderr.count("broken on purpose in rank 1") == 1
    assert "run failed: ValueError on rank 1" in done.stderr
    assert "parts.py" in done.stderr
    record = project.find("broken")
    assert json.loads((record / "status.json").read_text())["status"] == "failed"
    result = json.loads((record / "result.json").read_text())
    assert (result["rank"], result["exception_type"]) == (1, "ValueError")
    done = project.train("exited", 2, faults={"3-1": "exit"})
    assert (done.returncode, done.stderr.count("run failed")) == (5, 1), done.stderr
    assert "run failed: SystemExit on rank 1" in done.stderr
    assert "the code called sys.exit(5)" in done.stderr
    project.take_samples()


def test_loaders_of_different_lengths_are_refused_before_a_process_waits(project: Project) -> None:
    done = project.train("uneven", 2, "task.uneven=true")
    assert done.returncode == 65, done.stdout + done.stderr
    shown = " ".join(done.stderr.replace("│", " ").split())
    expected = "train_loader: rank 0 has 22 samples in 5 batches, and rank 1 has 15 samples in 3"
    assert expected in shown


@pytest.mark.long
def test_killed_processes_are_started_again_and_give_the_same_bits(project, whole) -> None:
    faults = {"5-1": "kill", "9-0": "kill", "7-1": "pause"}
    done = project.train("killed", 2, "model.dropout=0.3", faults=faults)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 1 was killed by SIGKILL" in done.stderr
    assert "rank 0 was killed by SIGKILL" in done.stderr
    assert not any((project.folder / "faults").iterdir())
    assert project.results("killed") == whole


@pytest.mark.long
@pytest.mark.parametrize(("kind", "code", "status"), [("term", 75, "preempted")])
def test_signal_to_one_process_saves_all_and_the_run_resumes(
    project, whole, kind: str, code: int, status: str
) -> None:
    done = project.train(kind, 2, "model.dropout=0.3", faults={"5-1": kind})
    assert done.returncode == code, done.stdout + done.stderr
    record = project.find(kind)
    found = json.loads((record / "status.json").read_text())
    assert (found["status"], found["step"] > 5) == (status, True)
    done = project.run("resume", str(record), "--nproc", "2", "--trust")
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.results(kind) == whole


@pytest.mark.long
def test_run_of_two_processes_resumes_with_one_and_three(project: Project) -> None:
    done = project.train("moved1", 2, faults={"6-0": "int"})
    assert done.returncode == 130, done.stdout + done.stderr
    shutil.copytree(project.folder / "moved1", project.folder / "moved3", symlinks=True)
    for nproc in (1, 3):
        record = project.find(f"moved{nproc}")
        done = project.run("resume", str(record), "--nproc", str(nproc), "--trust")
        assert done.returncode == 0, done.stdout + done.stderr
    one, three = project.weights("moved1"), project.weights("moved3")
    for name, tensor in one.items():
        torch.testing.assert_close(three[name], tensor, atol=1e-6, rtol=1e-5)
    project.take_samples()


def test_signal_to_the_launcher_stops_every_process(project: Project) -> None:
    child = project.begin(
        "run", "ranks.yaml", "record.log_dir=stopped", "--nproc", "2", "train.for=100000st"
    )
    for line in child.stdout:
        if "loss: " in line:
            child.signal(signal.SIGTERM)
            break
    done = child.end()
    assert done.returncode == 75, done.stderr
    assert "resume: " in done.stderr
    assert (project.find("stopped") / "checkpoints").is_dir()
    project.take_samples()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_processes_of_a_killed_launcher_end_and_the_run_can_be_resumed(project: Project) -> None:
    child = project.begin(
        "run", "ranks.yaml", "record.log_dir=orphaned", "--nproc", "2", "train.for=100000st"
    )
    for line in child.stdout:
        if "loss: " in line:
            child.signal(signal.SIGKILL)
            break
    done = child.end()  # waits for all that write to its output
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "Ctrl-C" not in done.stderr
    record = project.find("orphaned")
    step = json.loads((record / "status.json").read_text())["step"]
    done = project.run("resume", str(record), f"train.for={step + 20}st", "--nproc", "2", "--trust")
    assert done.returncode == 0, done.stdout + done.stderr
    project.take_samples()


@pytest.mark.long
def test_stop_ends_every_process_and_the_run_can_be_resumed(project: Project) -> None:
    child = project.begin(
        "run", "ranks.yaml", "record.log_dir=ended", "--nproc", "2", "train.for=100000st"
    )
    for line in child.stdout:
        if "loss: " in line:
            break
    stopping = run("-m", "epochal", "stop", str(project.find("ended")), cwd=project.folder)
    assert stopping.returncode == 0, stopping.stdout + stopping.stderr
    done = child.end()
    assert "stopped" in done.stdout + done.stderr
    status = json.loads((project.find("ended") / "status.json").read_text())
    assert status["status"] == "stopped", done.stderr
    words = ("resume", str(project.find("ended")), f"train.for={status['step'] + 2}st")
    done = project.run(*words, "--nproc", "2", "--trust")
    assert done.returncode == 0, done.stdout + done.stderr
    project.take_samples()


@pytest.mark.long
def test_folds_and_the_test_afterwards_use_all_processes(project: Project) -> None:
    done = project.train("folds", 2, "train.for=1ep", "train.folds=2", "--then-test")
    assert done.returncode == 0, done.stdout + done.stderr
    folds = [one.parent for one in (project.folder / "folds").glob("*/*/*/folds/*/result.json")]
    assert sorted(one.name for one in folds) == ["1", "2"]
    assert all((fold / "logs" / "run.rank1.log").is_file() for fold in folds)
    assert done.stdout.count("processes: 2, which share each batch") == 4
    assert all(list(fold.glob("test/*/*/*/result.json")) for fold in folds)
    assert done.stdout.count("test/acc") >= 2
    project.take_samples()


@pytest.mark.long
def test_script_starts_processes_itself(project: Project) -> None:
    script = """
import epochal as ep

if __name__ == "__main__":
    words = ["record.log_dir=script", "train.for=2st"]
    result = ep.run("ranks.yaml", overrides=words, nproc=2, device="cpu")
    print(result.status, result.steps)
    forked = {"nproc": 2, "device": "cpu", "can_fork": True}
    try:
        ep.run("ranks.yaml", overrides=["model.norm=3"], **forked)
    except ep.EpochalError as error:
        print("refused", str(error).splitlines()[0])
    try:
        ep.run("ranks.yaml", **forked)
    except KeyboardInterrupt:
        print("interrupted")
"""
    (project.folder / "faults").mkdir(exist_ok=True)
    (project.folder / "faults" / "4-1").write_text("int")
    (project.folder / "script.py").write_text(script)
    done = run(str(project.folder / "script.py"), cwd=project.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "finished 2\n" in done.stdout
    assert "refused model.norm" in done.stdout, done.stdout + done.stderr
    assert "interrupted\n" in done.stdout, done.stdout + done.stderr
    assert (project.find("script") / "logs" / "run.rank1.log").is_file()
    project.take_samples()


@pytest.mark.long
def test_script_that_starts_the_run_when_it_is_imported_is_refused(project: Project) -> None:
    script = "import epochal as ep\n\nep.run('ranks.yaml', nproc=2, device='cpu', no_file=True)\n"
    (project.folder / "script.py").write_text(script)
    done = run(str(project.folder / "script.py"), cwd=project.folder)
    assert done.returncode == 78, done.stderr
    assert done.stderr.strip() == (
        "nproc: each process imports script.py, which then starts the run again\n"
        '  write `if __name__ == "__main__":` above the line that starts it'
    )


JOINING = """
import json
import sys

import torch
from torch import nn

import epochal as ep
from parts import Net, Task


class Further(ep.Hook):
    def run_start(self, run):
        critic = run.place(nn.Linear(2, 1))
        critic(torch.ones(1, 2) * run.rank).sum().backward()
        wrapped = type(critic).__name__
        found = run.rank, run.local_rank, run.world_size, run.is_main, run.dir is None, wrapped
        gathered = run.world.gather(run.rank)
        with open(f"place.{run.rank}", "w") as file:
            json.dump([*found, critic.module.weight.grad.tolist(), gathered], file)


parts = {"task": Task(), "model": Net(), "optim": "sgd", "hooks": [Further()]}
result = ep.Experiment(**parts, train={"for": "2st"}, seed=int(sys.argv[1])).fit()
print("steps", result.steps)
"""


def join(project: Project, script: str, *words: str) -> list[subprocess.CompletedProcess[str]]:
    """Run a script in two processes with the variables of torchrun; the store is here."""
    (project.folder / "script.py").write_text(script)
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    env = {**os.environ, "MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port)}
    env |= {"WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1"}
    path = str(project.folder / "script.py")
    ranks = [
        Child(path, *words, cwd=project.folder, env={**env, "RANK": rank, "LOCAL_RANK": rank})
        for rank in ("0", "1")
    ]
    return [rank.end() for rank in ranks]


def test_processes_of_another_launcher_are_joined(project: Project) -> None:
    first, second = join(project, JOINING, "0")
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "finished (max_steps)" in first.stdout
    assert second.stdout == "steps 2\n"
    project.take_samples()


def test_further_model_is_shared_by_all_processes(project: Project) -> None:
    ends = join(project, JOINING, "1")
    assert [one.returncode for one in ends] == [0, 0], ends
    for rank in (0, 1):
        found = json.loads((project.folder / f"place.{rank}").read_text())
        place = [rank, rank, 2, rank == 0, rank == 1, "DistributedDataParallel"]
        assert found == [*place, [[0.5, 0.5]], [0, 1]]
    project.take_samples()


def test_mistake_in_the_config_is_shown_by_the_main_process_only(project: Project) -> None:
    script = "import epochal as ep\nep.run('ranks.yaml', overrides=['optim.lr=-1'])\n"
    first, second = join(project, script)
    assert (first.returncode, second.returncode) == (78, 78)
    assert "optim.lr" in first.stderr
    assert second.stderr == ""


@pytest.mark.long
def test_hang_names_the_rank_that_holds_up_the_others(project: Project) -> None:
    words = ("engine.hang_after=2s", "--restarts", "1")
    done = project.train("stuck", 2, *words, faults={"4-1": "hang"})
    assert done.returncode == 0, done.stdout + done.stderr
    record = project.find("stuck")
    events = [json.loads(one) for one in (record / "events.jsonl").read_text().splitlines()]
    (hang,) = [one for one in events if one["kind"] == "hang"]
    assert hang["ranks"] == "waiting for rank 1 at step 4 of train"
    assert "suffer" in (record / "logs" / "stacks.rank1.txt").read_text()
    assert "rank 0 hung at step 4 (waiting for rank 1 at step 4 of train)" in done.stderr


def test_parameters_without_gradients_are_explained(project: Project) -> None:
    done = project.train("unused", 2, "model.unused=true")
    assert done.returncode == 1
    assert "engine.find_unused=true" in " ".join(done.stderr.replace("│", " ").split())
    done = project.train("used", 2, "model.unused=true", "engine.find_unused=true", "train.for=2st")
    assert done.returncode == 0, done.stdout + done.stderr
    project.take_samples()


def test_predictions_of_two_processes_come_once_and_in_order(
    project, whole, tmp_path: Path
) -> None:
    script = tmp_path / "predict.py"
    script.write_text(
        "import epochal as ep, json, sys\n"
        "result = ep.predict(sys.argv[1], nproc=2, device='cpu', can_fork=True, no_file=True)\n"
        "print(json.dumps([one.tolist() for one in result.value]))\n"
    )
    done = run(str(script), str(project.find("whole")), cwd=project.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    batches = json.loads(done.stdout.splitlines()[-1])
    assert [index for batch in batches for index in batch] == list(range(41))


@pytest.mark.long
def test_prediction_file_of_two_processes_is_whole_and_in_order(project, whole) -> None:
    trained = str(project.find("whole"))
    for name, words, faults in (
        ("in the record", (), {}),
        ("named", ("--output", "own.jsonl"), {"0-1": "kill"}),
    ):
        done = project.run("predict", trained, "--trust", "--nproc", "2", *words, faults=faults)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("rank 1 was killed" in done.stderr) == bool(faults)
        assert "preempted" not in done.stderr  # the signal of the launcher is no preemption
        assert "wrote    41 predictions" in done.stdout, name
        (path,) = [*project.folder.rglob("predictions.jsonl"), *project.folder.glob("own.jsonl")]
        assert [json.loads(line) for line in path.read_text().splitlines()] == list(range(41)), name
        path.unlink()
    assert not any(project.folder.glob(".*.tmp"))


@pytest.mark.long
def test_debugger_opens_in_one_rank_and_the_others_wait(project: Project) -> None:
    words = ("run", "ranks.yaml", "--nproc", "2", "--debug-rank", "1", "train.for=3st")
    for title, faults, typed, code, shown in (
        (
            "breakpoints",
            {"1-0": "break", "1-1": "break"},
            "p f'at {run.step}-{run.rank}'\nc\n",
            0,
            "at 1-1",
        ),
        ("error", {"1-1": "raise"}, "p f'at {kind} of {run.rank}'\n", 1, "at raise of 1"),
        ("left", {"1-1": "break"}, "q\n", 130, "(Pdb)"),
    ):
        done = project.run(*words, f"record.log_dir={title}", faults=faults, input=typed)
        assert done.returncode == code, (title, done.stdout + done.stderr)
        assert done.stdout.count(shown) == 1, (title, done.stdout)
        assert "BdbQuit" not in done.stdout + done.stderr, title
        status = json.loads((project.find(title) / "status.json").read_text())["status"]
        assert status == {0: "finished", 1: "failed", 130: "interrupted"}[code], title
        for fault in (project.folder / "faults").iterdir():
            fault.unlink()
    project.take_samples()


def _suffer_and_finish(project: Project, name: str, whole, num_faults: int, seed: int) -> None:
    """Train with faults at random steps and ranks; errors need a resume each."""
    chosen = random.Random(seed)
    left = {}
    while len(left) < num_faults:
        step, rank = chosen.randrange(15), chosen.randrange(2)
        left[f"{step}-{rank}"] = chosen.choice(["kill", "pause", "raise", "term", "pause"])
    done = project.train(name, 2, "model.dropout=0.3", faults=left)
    for _ in range(num_faults + 1):
        if done.returncode == 0:
            break
        assert done.returncode in (1, 75), done.stdout + done.stderr
        words = ("resume", str(project.find(name)), "--nproc", "2", "--trust")
        done = project.run(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.results(name) == whole
    project.take_samples()


@pytest.mark.long
def test_twenty_faults_change_no_bit(project: Project, whole) -> None:
    _suffer_and_finish(project, "chaos", whole, num_faults=20, seed=0)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(1, 7))
def test_a_hundred_and_twenty_faults_change_no_bit(project: Project, whole, seed: int) -> None:
    _suffer_and_finish(project, f"torture{seed}", whole, num_faults=20, seed=seed)
