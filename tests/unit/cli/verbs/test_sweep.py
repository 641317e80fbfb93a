"""``epochal sweep`` starts, continues, changes, lists and exports sweeps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from epochal.config.source_file import FrozenSource
from epochal.launch.pool.backlog import JobEnd
from epochal.launch.pool.gpus import Gpu
from epochal.records.find import read_run
from epochal.records.mail.mailbox import Mailbox
from small_project import Command, run_folders, write
from swept import ForkedExecutor, coordinator, end_job, leave_run, new_sweep, work

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.sweep.sweep_folder import SweepFolder

SWEEP = """
    $BASE: config.yaml
    train: {for: 1ep}
    sweep:
      method: quasi-random
      trials: 2
      space:
        optim.lr: {min: 1e-3, max: 1e-1, log: true}
        model.dropout: [0.0, 0.5]
"""


@pytest.fixture(autouse=True)
def in_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPOCHAL_LEASES_DIR", str(tmp_path / "leases" / "here"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("epochal.launch.pool.local_executor.LocalExecutor", ForkedExecutor)


@pytest.mark.long
def test_trials_are_ordinary_runs(shop: Path, epochal: Command) -> None:
    write(shop / "sweep.yaml", SWEEP)
    done = epochal("sweep", "sweep.yaml", "--devices", "cpu")
    assert done.code == 0, done.err
    (sweep,) = (shop / "runs" / "sweeps").iterdir()
    assert f"sweep {sweep.name}\n" in done.out
    assert done.out.count("finished  trial") == 2
    assert "2 of 2 trials, 2 finished" in done.out
    assert f"report: {sweep / 'report.html'}" in done.out
    assert (sweep / "report.png").is_file()

    first, second = map(read_run, run_folders(shop))
    assert (first.summary.status, second.summary.status) == ("finished", "finished")
    trial = first.run["trial"]
    assert (trial["sweep"], trial["number"], trial["repeat"]) == (sweep.name, 0, 0)
    assert first.expanded["optim"]["lr"] == trial["values"]["optim.lr"]
    assert first.provenance["optim.lr"][0]["layer"] == "sweep"
    shown = epochal("show", first.path).out
    assert f"  trial    0 of the sweep {sweep.name} (optim.lr=" in shown
    assert "(sweep)" in shown

    (mail,) = Mailbox(shop / "runs").mails()
    assert mail.kind == "sweep_done"
    assert "2 trials" in mail.subject
    assert "best is trial" in mail.text

    line = epochal("runs").out.splitlines()[0]
    assert line.startswith(f"sweep {sweep.name}: 2 of 2 trials, best val/acc ")
    listed = json.loads(epochal("runs", "--json", "--where", f"sweep={sweep.name}").out)
    assert len(listed) == 2
    assert epochal("runs", "--trials").out.count("finished") == 2
    assert epochal("runs", "--where", "trial=1").out.count("finished") == 1
    assert epochal("mail").out.count("deleted") == 0

    # Its frozen code is in its folder, so that it lives exactly as long as the sweep.
    assert not (shop / "runs" / ".epochal" / "jobs").exists()
    (shop / "shop" / "parts.py").write_text("raise RuntimeError('changed since')")
    again = epochal("sweep", "last", "sweep.trials=3", "--devices", "cpu")
    assert "changed: sweep.trials=3" in again.out
    assert "3 of 3 trials, 3 finished" in again.out
    assert again.err == ""
    assert [one.kind for one in Mailbox(shop / "runs").mails()] == ["sweep_done"] * 2


def test_trials_run_on_the_device_that_was_asked_for(
    shop: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu("GPU-0", "card", lambda: (8, 8))
    monkeypatch.setattr("epochal.launch.pool.devices.find_gpus", lambda: [gpu])
    write(shop / "sweep.yaml", SWEEP)
    done = epochal("sweep", "sweep.yaml", "--device", "cpu", "sweep.trials=1")
    assert done.code == 0, done.err
    (run,) = map(read_run, run_folders(shop))
    assert (run.run["device"]["device"], run.summary.status) == ("cpu", "finished")
    done = epochal("sweep", "sweep.yaml", "--device", "cuda:1")
    assert "there is no GPU 'cuda:1': this machine has 1" in done.err
    assert len(list((shop / "runs" / "sweeps").iterdir())) == 1


def test_the_space_is_checked_before_the_first_trial(shop: Path, epochal: Command) -> None:
    write(shop / "sweep.yaml", SWEEP)
    words = ("sweep.space.model.dropout=[0.1, much]", "sweep.nope=1")
    done = epochal("sweep", "sweep.yaml", *words)
    assert done.code == 78
    assert "sweep.nope: unknown key 'nope'" in done.err
    done = epochal("sweep", "sweep.yaml", words[0])
    assert "sweep.space.model.dropout: expected a number, got 'much'" in done.err
    assert "sweep.yaml: 1 mistake; nothing was started" in done.err
    assert not (shop / "runs").exists()
    done = epochal("sweep", "config.yaml")
    assert "sweep: the config has no search space" in done.err
    done = epochal("sweep", "missing.yaml")
    assert (done.code, "missing.yaml: no such file" in done.err) == (66, True), done.err


def test_options_that_a_sweep_cannot_follow_are_refused(shop: Path, epochal: Command) -> None:
    write(shop / "sweep.yaml", SWEEP)
    rows = {
        ("--no-file",): "a sweep reads the records of its trials",
        ("--variant", "all"): "a sweep takes one variant, got 'all'",
        ("--gpus", "2"): "the pool gives each run its devices",
        ("--device", "0,1"): "the pool gives each run its devices",
        ("--nproc", "0"): "must be at least 1, got 0",
        ("--device", "0", "--devices", "cpu"): "--device: '0' is not a device of the pool: cpu",
        ("--dry-run", "--devices", "7"): "there is no GPU '7'",
    }
    for words, message in rows.items():
        done = epochal("sweep", "sweep.yaml", *words)
        assert (done.code, message in done.err) == (78, True), words


def test_a_dry_run_shows_proposals(shop: Path, epochal: Command) -> None:
    write(shop / "sweep.yaml", SWEEP)
    done = epochal("sweep", "sweep.yaml", "--dry-run", "--per-device", "3")
    assert done.out.splitlines()[0].startswith("trial 0: optim.lr=")
    total, places, folder, command = done.out.splitlines()[2:]
    assert total == "quasi-random: 2 trials by +val/acc"
    assert (places, folder) == ("2 at once on cpu; each trial starts as", f"  cd {shop}")
    assert f" run-job {shop}/runs/sweeps/NEW/jobs/000000-0.json --device cpu" in command
    words = ("sweep.method=grid", "sweep.trials=null", "sweep.space={optim.lr: [0.1, 0.2, 0.3]}")
    done = epochal("sweep", "sweep.yaml", "--dry-run", *words)
    assert "\ngrid: all 6 combinations by +val/acc\n1 at once on cpu;" in done.out
    assert not (shop / "runs" / "sweeps").exists()


@pytest.fixture
def half_done(shop: Path) -> SweepFolder:
    """A sweep of made-up runs: one finished, one failed, one running."""
    folder = new_sweep(shop)
    with coordinator(folder) as backlog:
        work(backlog, 1)
        failed, running = backlog.take(), backlog.take()
        assert failed is not None
        assert running is not None
        path = leave_run(failed, (), "failed", exception_type="ValueError", message="torn")
        end_job(backlog, failed, JobEnd(code=1, run_dir=path))
        leave_run(running, (0.3,), "running")
        backlog.write_summary()
    return folder


def test_a_sweep_is_listed_and_shown(half_done: SweepFolder, epochal: Command) -> None:
    name = half_done.id
    (line,) = epochal("sweep").out.splitlines()
    assert line.startswith(f"sweep {name}: 3 of 3 trials, 1 failed, best val/loss ")
    for word in (name, "sweeps/last", half_done.path, name[-9:]):
        done = epochal("show", word)
        assert done.code == 0, word
        assert f"sweep {name}\n" in done.out, word
        assert "  search   random by -val/loss\n" in done.out
        assert "  trials   3 of 3 trials, 1 running, 1 finished, 1 failed\n" in done.out
        assert "failed    trial 1: ValueError: torn" in done.out
    plain = json.loads(epochal("show", name, "--json").out)
    assert [one["number"] for one in plain["trials"]] == [0, 1, 2]
    assert "is a sweep, which has no --log" in epochal("show", name, "--log").err


def test_a_dry_run_of_a_sweep_starts_and_changes_nothing(
    half_done: SweepFolder, epochal: Command
) -> None:
    files = {path: path.read_bytes() for path in half_done.path.rglob("*") if path.is_file()}
    done = epochal("sweep", "last", "sweep.trials=5", "--dry-run", "--devices", "cpu")
    shown = [line.partition(":")[0] for line in done.out.splitlines()]
    assert shown[:5] == [
        *("trial 2 waits", "trial 3", "trial 4", "random"),
        "1 at once on cpu; each trial starts as",
    ]
    assert "/jobs/000002-0.json" in shown[6]
    assert shown[7:] == ["2 trials ended; nothing was started or changed"]
    now = {path: path.read_bytes() for path in half_done.path.rglob("*") if path.is_file()}
    assert now == files


def test_changes_are_checked_like_the_config(half_done: SweepFolder, epochal: Command) -> None:
    half_done.lock()
    for key in ("sweep.constraints=[optim.lr > 99]", "sweep.space.trains.for=[1ep]"):
        done = epochal("sweep", "last", key)
        assert done.code == 78, key
        assert half_done.read_facts()["changes"] == []
    for count in (8, 9):
        done = epochal("sweep", "last", f"sweep.trials={count}")
        assert "set 2 times" not in done.err
    assert half_done.read_facts()["changes"] == ["sweep.trials=9"]


def test_what_all_trials_share_cannot_be_changed(half_done: SweepFolder, epochal: Command) -> None:
    rows = {
        "optim.lr=0.3": "optim.lr: is frozen: only the search of a sweep can change",
        "trials=9": "trials: is a key of sweep\n  write sweep.trials=9",
        "--epochs=3": "--epochs: is frozen with the config of the sweep",
        "--then-test": "--then-test: is frozen with the config of the sweep",
    }
    for word, message in rows.items():
        done = epochal("sweep", "last", word)
        assert (done.code, message in done.err) == (78, True), (word, done.err)
    assert half_done.read_facts()["changes"] == []


def test_a_sweep_says_that_it_does_not_follow_an_edited_config(
    half_done: SweepFolder, shop: Path, epochal: Command
) -> None:
    words = ("sweep", "last", "--dry-run", "--devices", "cpu")
    source = half_done.read_base().source
    assert isinstance(source, FrozenSource)
    (text,) = source.texts.values()
    for now, is_noted in ((text, False), (f"{text}# smaller\n", True), ("", True)):
        source.path.write_text(now)
        done = epochal(*words)
        assert done.code == 0
        assert ("continues without the edits: toy.yaml" in done.out) is is_noted, now
    done = epochal("sweep", "last", "toy.yaml")
    assert done.code == 78
    assert "toy.yaml: a sweep continues with the config it began with" in done.err
    assert "`epochal sweep toy.yaml` starts another one" in done.err


def test_another_process_takes_changes_over(half_done: SweepFolder, epochal: Command) -> None:
    lock = half_done.lock()
    done = epochal("sweep", "last", "sweep.trials=9")
    assert "the process that runs this sweep applies the changes" in done.out
    assert half_done.read_settings().num_trials == 9
    done = epochal("sweep", "last")
    assert done.code != 0
    assert "runs this sweep" in done.err
    assert f"`epochal stop {half_done.id}`" in done.err
    lock.release()


def test_a_sweep_is_exported(half_done: SweepFolder, shop: Path, epochal: Command) -> None:
    pytest.importorskip("optuna")
    done = epochal("sweep", "last", "--export", "study.db")
    assert done.out == "wrote 3 trials; open it with: optuna-dashboard sqlite:///study.db\n"
    assert (shop / "study.db").is_file()
    write(shop / "sweep.yaml", SWEEP)
    done = epochal("sweep", "sweep.yaml", "--export", "study.log")
    assert "takes the name of a sweep" in done.err


def test_without_sweeps_a_hint_is_given(shop: Path, epochal: Command) -> None:
    assert epochal("sweep").out == "no sweeps yet; start one with: epochal sweep CONFIG\n"
    for verb in ("show", "stop"):
        assert "runs: no sweeps here" in epochal(verb, "sweeps/last").err, verb
