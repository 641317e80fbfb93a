"""A killed and resumed run equals one that was never interrupted."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import epochal as ep
import forked
from epochal.checkpoint import read_checkpoint
from epochal.errors import CheckpointError
from epochal.records import RunRecord, read_run
from epochal.records.folder.checkpoint_manifests import find_checkpoints
from epochal.records.layout.lease import holding_lease
from epochal.testing import TinyModel
from resume import results_of
from small_project import Command, run_folders, tree, write

DYING = """
import os
from pathlib import Path
import epochal as ep
from epochal.engine.state.saver import Saver
from shop.parts import Points

class Dying(ep.Hook):
    '''Kills the process after the step that the environment names.'''
    def step_end(self, run):
        if os.environ.get("DIES_AT") == str(run.step):
            run.find_part(Saver).finish(run)
            os._exit(9)

class Sized(Points):
    '''Has as many samples as a file says.'''
    def __init__(self):
        super().__init__(num_samples=int(Path("size.txt").read_text()))
"""

CONFIG = """
$BASE: base.yaml
tag: shop
task: {type: shop.dying.Sized}
model: {type: shop.parts.Net}
train: {for: 3ep}
monitor: +val/acc
average: {type: ema, decay: 0.9}
schedule: {type: StepLR, step_size: 4, gamma: 0.5}
log: {console_every: 2st, record_every: 2st}
checkpoint: {every: 4st, keep_last: null}
hooks: [{type: shop.dying.Dying}]
"""


@pytest.fixture
def dying(shop: Path) -> Path:
    """A project whose runs kill themselves on request."""
    write(shop / "shop" / "dying.py", DYING)
    write(shop / "config.yaml", CONFIG)
    (shop / "size.txt").write_text("24")
    return shop


def kill(*words: str, step: int) -> Path:
    """A run that was killed after a step."""
    environment = {**os.environ, "DIES_AT": str(step)}
    command = ["epochal", "run", "config.yaml", "--device", "cpu", *words]
    done = forked.run("-m", *command, env=environment)
    assert done.returncode == 9, done.stderr
    return run_folders(Path())[-1]


def start(*overrides: str, **choices: Any) -> RunRecord:
    result = ep.run("config.yaml", overrides=overrides, raise_errors=True, **choices)
    assert result.dir is not None
    return read_run(result.dir)


def test_killed_run_resumes_bit_for_bit(dying: Path, epochal: Command) -> None:
    folder = kill(step=11)
    before = tree(folder / "config") | {"page": (folder / "README.md").read_bytes()}
    assert read_run(folder).summary.status == "lost"
    done = epochal("resume", folder.name, "--device", "cpu")
    assert done.code == 0, done.err
    assert "resumed: from shop-8: step 8, epoch 1" in done.out
    assert "config:" not in done.out
    record = read_run(folder)
    assert results_of(start(device="cpu")) == results_of(record)
    assert tree(folder / "config") | {"page": (folder / "README.md").read_bytes()} == before
    assert [one.attempt for one in record.attempts] == [0, 1]
    assert (record.summary.attempt, record.attempts[1].step) == (1, 8)
    assert not (folder / "lease.json").exists()
    assert "1x" in epochal("runs").out
    shown = epochal("show", folder.name).out
    assert "attempt  1: resumed from shop-8, step 8" in shown
    assert "over 2 attempts; at least, since one was killed" in shown


GROUPS = "{type: AdamW, lr: 0.05, groups: [{match: '*.bias', lr_mult: 2, weight_decay: 0}]}"
SEVERAL = (
    "{matrix: {type: SGD, lr: 0.05, momentum: 0.9, match: linear.weight, every: 3, "
    "schedule: {type: cosine}}, rest: {type: AdamW, lr: 0.1, clip: 0.5}}"
)


@pytest.mark.parametrize("optim", [GROUPS, SEVERAL], ids=["groups", "several"])
def test_killed_run_resumes_with_parameter_groups_and_several_optimizers(
    dying: Path, epochal: Command, optim: str
) -> None:
    write(dying / "base.yaml", f"optim: {optim}")
    folder = kill(step=11)
    done = epochal("resume", folder.name, "--device", "cpu")
    assert done.code == 0, done.err
    record = read_run(folder)
    assert sum(name.startswith("lr/") for name in record.metric_names()) == 2
    assert results_of(start(device="cpu")) == results_of(record)


def test_auto_resume_finds_an_unfinished_run_after_every_kill(
    dying: Path, epochal: Command
) -> None:
    folder = kill("--resume", "auto", step=6)
    assert kill("--resume", "auto", step=14) == folder
    done = epochal("run", "config.yaml", "--device", "cpu", "--resume", "auto")
    assert done.code == 0, done.err
    record = read_run(folder)
    assert [one.step for one in record.attempts] == [0, 4, 12]
    assert results_of(start(device="cpu")) == results_of(record)
    assert len(run_folders(dying)) == 2
    fresh = epochal("run", "config.yaml", "--device", "cpu", "--resume", "auto", "--fast")
    assert fresh.code == 0
    assert len(run_folders(dying)) == 3


def test_finished_run_can_be_extended(dying: Path) -> None:
    short = start("train.for=2ep")
    refused = ep.resume(short.path, raise_errors=False)
    assert (refused.status, refused.reason) == ("failed", "config")
    assert "has already finished" in refused.message
    assert read_run(short.path).summary.status == "finished"
    longer = ep.resume(short.path, overrides=["train.for=3ep"], raise_errors=True)
    assert longer.dir == short.path
    assert results_of(start()) == results_of(read_run(short.path))
    again = ep.resume(short.path, epochs=4, raise_errors=True)
    assert again.epochs == 4
    assert [one.overrides for one in read_run(short.path).attempts] == [
        (),
        ('train.for="3ep"',),
        ('train.for="4ep"',),
    ]


def test_run_resumes_from_best_and_named_checkpoints(dying: Path) -> None:
    first = start("train.for=2ep")
    step = read_run(first.path).best("val/acc", "max").step
    longer = ep.resume(
        first.path, overrides=["train.for=3ep"], resume_from="best", raise_errors=True
    )
    assert longer.steps == 18
    assert read_run(first.path).attempts[-1].step == step
    named = ep.resume(first.path, overrides=["train.for=4ep"], resume_from="shop-4")
    assert named.steps == 24
    missing = ep.resume(
        first.path, overrides=["train.for=5ep"], resume_from="shop-5", raise_errors=False
    )
    assert "shop-5: no such checkpoint" in missing.message


def test_steps_that_a_resumed_run_repeats_are_kept_once(dying: Path) -> None:
    write(
        dying / "config.yaml",
        CONFIG.replace("keep_last: null", "keep_last: 1, keep_best: 3").replace(
            "hooks: [", "hooks: [{type: SafetensorsExport, keep: 2}, "
        ),
    )
    whole = start()
    folder = start("train.for=2ep").path
    best = min(find_checkpoints(folder / "checkpoints"), key=lambda one: one.step)
    ep.resume(folder, overrides=["train.for=3ep"], resume_from=best.name, raise_errors=True)
    assert kept_steps(folder) == kept_steps(whole.path)
    exported = [
        sorted(path.name for path in (one / "safetensors").iterdir())
        for one in (folder, whole.path)
    ]
    assert exported[0] == exported[1] == ["shop-12.safetensors", "shop-18.safetensors"]


def kept_steps(folder: Path) -> list[int]:
    return sorted(one.step for one in find_checkpoints(folder / "checkpoints"))


def test_changed_data_is_refused(dying: Path) -> None:
    first = start("train.for=2ep")
    (dying / "size.txt").write_text("28")
    before = tree(first.path)
    result = ep.resume(first.path, overrides=["train.for=3ep"], raise_errors=False)
    assert result.reason == "config"
    assert "training data, length: 24 -> 28" in result.message
    assert read_run(first.path).last("val/acc").step == 12
    assert_untouched(first.path, before)


def assert_untouched(folder: Path, before: dict[str, bytes]) -> None:
    """Check that only the heartbeat is new, and that the log says what was refused."""
    after = tree(folder)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert {Path(name).name for name in changed} <= {"heartbeat.json", "run.log"}


def test_changed_data_can_be_allowed_with_a_warning(dying: Path, epochal: Command) -> None:
    first = start("train.for=2ep")
    (dying / "size.txt").write_text("28")
    done = epochal("resume", first.path, "train.for=3ep", "--allow-changed", "--device", "cpu")
    assert done.code == 0, done.err
    assert "training data, length: 24 -> 28" in done.out
    assert "training data, length: 24 -> 28" in read_run(first.path).attempts[-1].changed


def test_changed_config_is_refused_unless_allowed(dying: Path, epochal: Command) -> None:
    first = start("train.for=1ep")
    words = ("resume", "last", "train.for=2ep", "optim.lr=0.01")
    done = epochal(*words)
    assert done.code == 78
    assert "optim.lr: 0.1 -> 0.01" in done.err
    before = tree(first.path)
    assert epochal(*words).code == 78
    assert tree(first.path) == before
    done = epochal(*words, "--allow-changed")
    assert done.code == 0, done.err
    assert "optim.lr: 0.1 -> 0.01" in done.out


def test_folder_in_use_is_refused(dying: Path, epochal: Command) -> None:
    first = start("train.for=1ep")
    with holding_lease(first.path):
        done = epochal("resume", "last", "train.for=2ep")
    assert done.code == 74
    assert f"process {os.getpid()} on" in done.err
    assert read_run(first.path).summary.status == "finished"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("resume", "nowhere"), 74, "nowhere: no such run in runs"),
        (("run", "config.yaml", "--resume", "nowhere"), 74, "nowhere: no such run in runs"),
        (("run", "config.yaml", "config.yaml", "--resume", "last"), 78, "several configs cannot"),
        (("run", "config.yaml", "--resume", "last", "--no-file"), 78, "in its own folder"),
    ],
)
def test_missing_run_to_resume_is_an_error(
    dying: Path, epochal: Command, words: tuple[str, ...], code: int, message: str
) -> None:
    start("train.for=1ep")
    done = epochal(*words)
    assert (done.code, message in done.err) == (code, True), done.err
    assert len(run_folders(dying)) == 1


def unframed(text: str) -> str:
    """The text of a frame in one line."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("words", [("resume",), ("run", "config.yaml", "--resume")])
def test_run_that_died_before_its_first_checkpoint_starts_again_in_its_folder(
    dying: Path, epochal: Command, words: tuple[str, ...]
) -> None:
    weights = start("train.for=1ep", "tag=first").path / "checkpoints" / "final.safetensors"
    write(dying / "config.yaml", f"{CONFIG}init_from: {weights}\n")
    folder = kill(step=3)
    done = epochal(*words, folder, "--device", "cpu")
    assert done.code == 0, done.err
    assert "it died before its first checkpoint, and starts again at step 0" in done.out + done.err
    again = read_run(folder)
    assert again.summary.status == "finished"
    assert [(one.attempt, one.step, one.cause) for one in again.attempts] == [
        (0, 0, "started"),
        (1, 0, "resumed"),
    ]
    assert "attempt  1: resumed from the start, step 0" in epochal("show", folder).out
    assert results_of(again) == results_of(start())
    assert len(run_folders(dying)) == 3


def test_run_that_died_before_it_was_described_starts_again(dying: Path, epochal: Command) -> None:
    folder = kill(step=3)
    (folder / "run.json").unlink()
    done = epochal("resume", folder)
    assert done.code == 74
    assert f"epochal run FILE --resume {folder}" in unframed(done.err)
    done = epochal("run", "config.yaml", "--resume", folder, "--device", "cpu")
    assert done.code == 0, done.err
    record = read_run(folder)
    assert record.summary.status == "finished"
    assert (record.summary.tag, record.run["config_path"]) == ("shop", "config.yaml")


@pytest.mark.parametrize("words", [("resume",), ("run", "config.yaml", "--resume")])
def test_run_that_died_before_its_config_was_written_is_refused(
    dying: Path, epochal: Command, words: tuple[str, ...]
) -> None:
    folder = kill(step=2)
    for name in ("run.json", "status.json"):
        (folder / name).unlink()
    shutil.rmtree(folder / "config")
    done = epochal(*words, folder)
    assert done.code == 74
    assert "there is nothing to resume: it ended before its config was written" in unframed(
        done.err
    )
    assert "start it again with its config" in unframed(done.err)
    assert [*folder.parent.iterdir()] == [folder]


def test_deleted_checkpoints_are_no_reason_to_start_again(dying: Path, epochal: Command) -> None:
    folder = kill(step=11)
    shutil.rmtree(folder / "checkpoints")
    done = epochal("resume", folder)
    assert done.code == 74
    assert "has no checkpoint to resume from" in unframed(done.err)
    assert len(read_run(folder).attempts) == 1


def test_run_without_run_json_resumes_with_its_config(dying: Path, epochal: Command) -> None:
    folder = kill(step=11)
    (folder / "run.json").write_text("{")
    done = epochal("resume", folder)
    assert done.code == 74
    assert f"{folder / 'run.json'}: is damaged, so the folder of its code is unknown" in done.err
    assert f"epochal run FILE --resume {folder}" in done.err
    done = epochal("run", "config.yaml", "--resume", folder, "--device", "cpu")
    assert done.code == 0, done.err
    assert read_run(folder).summary.status == "finished"


@pytest.mark.parametrize("words", [("resume",), ("run", "config.yaml", "--resume")])
def test_resume_does_not_need_the_initial_weights(
    dying: Path, epochal: Command, words: tuple[str, ...]
) -> None:
    weights = start("train.for=1ep", "tag=first").path / "checkpoints" / "final.safetensors"
    write(dying / "config.yaml", f"{CONFIG}init_from: {weights}\n")
    folder = kill(step=11)
    weights.unlink()
    done = epochal(*words, folder, "--device", "cpu")
    assert done.code == 0, done.err
    assert read_run(folder).summary.status == "finished"
    fresh = epochal("run", "config.yaml", "--resume", "auto", "--device", "cpu")
    assert fresh.code == 78
    assert "init_from: no such file" in unframed(fresh.err)
    assert len(run_folders(dying)) == 2


def test_last_means_the_last_training(dying: Path, epochal: Command) -> None:
    first = start("train.for=1ep")
    assert epochal("test", "last", "--device", "cpu").code == 0
    tested = run_folders(dying)[-1]
    for words in (("resume", "last"), ("run", "config.yaml", "--resume", "last")):
        done = epochal(*words, "train.for=2ep", "--device", "cpu", "--allow-changed")
        assert done.code == 0, done.err
        assert f"folder: {first.path}" in done.out
        set_end(first.path, "interrupted")
    done = epochal("resume", tested)
    assert done.code == 78
    assert "only a training can be resumed, and this is a test" in unframed(done.err)


def set_end(folder: Path, status: str) -> None:
    known = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(known | {"status": status}))


def test_run_with_parts_from_python_resumes_in_its_script(dying: Path) -> None:
    def experiment(**choices: Any) -> ep.Experiment:
        torch.manual_seed(0)
        return ep.Experiment(
            "config.yaml",
            model=TinyModel(),
            overrides=[f"train.for={choices.pop('length', '1ep')}"],
            choices={"raise_errors": True, **choices},  # type: ignore[typeddict-item]
        )

    first = experiment().run()
    assert first.dir is not None
    with pytest.raises(CheckpointError, match=r"model came from Python.*\n.*choices=\{'resume'"):
        ep.resume(first.dir)
    longer = experiment(length="2ep", resume=first.dir).run()
    assert (longer.dir, longer.epochs) == (first.dir, 2)
    whole = experiment(length="2ep").run()
    assert whole.dir is not None
    assert results_of(read_run(whole.dir)) == results_of(read_run(first.dir))
    assert json.loads((first.dir / "result.json").read_text())["attempt"] == 1


def test_run_resumes_from_checkpoints_in_another_folder(dying: Path, tmp_path: Path) -> None:
    first = start("train.for=1ep", f"checkpoint.dir={tmp_path / 'large'}")
    assert (first.path / "checkpoints").is_symlink()
    longer = ep.resume(first.path, overrides=["train.for=2ep"], raise_errors=True)
    assert longer.epochs == 2
    assert [one.step for one in read_run(first.path).attempts] == [0, 6]


def test_interrupted_run_resumes_without_the_stop_request(
    dying: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is recorded because of an early end is not part of the resumed run."""
    write(
        dying / "shop" / "requests.py",
        """
        import os
        import epochal as ep
        class StopRequest(ep.Hook):
            def step_end(self, run):
                if os.environ.get("STOPS_AT") == str(run.step):
                    run.stop("user_interrupt", status="interrupted")
        """,
    )
    hooks = "hooks=[{type: shop.requests.StopRequest}]"
    monkeypatch.setenv("STOPS_AT", "9")
    stopped = ep.run("config.yaml", overrides=[hooks], raise_errors=False)
    monkeypatch.delenv("STOPS_AT")
    assert (stopped.status, stopped.steps) == ("interrupted", 9)
    assert stopped.dir is not None
    ep.resume(stopped.dir, raise_errors=True)
    assert results_of(start(hooks)) == results_of(read_run(stopped.dir))


def test_registered_caches_are_saved_and_restored_defect_1(
    dying: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        dying / "shop" / "caching.py",
        """
        import os
        import epochal as ep
        class Caching(ep.Hook):
            def run_start(self, run):
                if "SCALE" in os.environ:
                    run.register_caches({"scale": float(os.environ["SCALE"])})
        """,
    )
    monkeypatch.setenv("SCALE", "0.5")
    first = start("train.for=2ep", "hooks=[{type: shop.caching.Caching}]")
    monkeypatch.delenv("SCALE")
    ep.resume(first.path, overrides=["train.for=3ep"], raise_errors=True)
    found = find_checkpoints(first.path / "checkpoints")
    assert found[-1].step == 18
    for one in found:
        assert read_checkpoint(one.path)[0]["caches"] == {"scale": 0.5}
