"""Output and evaluation pipes, train-and-test, and predictions of whole experiments."""

from __future__ import annotations

import json
import os
import shutil
import signal
from typing import TYPE_CHECKING

import pytest

import epochal as ep
from epochal.records.folder.media import read_media
from forked import Child
from small_project import Command, command, forgetting, run_folders, write, write_shop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STAGES = """
    import os, signal
    from shop.parts import Points

    def predicted(samples):
        return {**samples, "predicted": samples["logits"].argmax(dim=1).tolist()}

    def misspelt(sample):
        return {}

    def scores(samples, metrics):
        right = [a == b for a, b in zip(samples["predicted"], samples["label"].tolist())]
        assert sum(right) / len(right) == metrics["acc"]
        return {"wrong": len(right) - sum(right)}

    class Named(Points):
        def input_sample(self, row):
            import torch
            return {"x": torch.tensor(row["point"]), "label": torch.tensor(0)}

        def batch_forward(self, model, batch):
            if os.environ.get("DIE_AT") == str(getattr(self, "seen", 0)):
                os.kill(os.getpid(), signal.SIGKILL)
            if not model.training:
                self.seen = getattr(self, "seen", 0) + 1
            return super().batch_forward(model, batch)
"""
PIPES = """
    $BASE: config.yaml
    task: {type: shop.stages.Named}
    outputs:
      - {type: collect, columns: {logits: out.logits, label: batch.label}}
      - {type: shop.stages.predicted}
      - {type: save_json_lines}
      - {type: save_parquet, on: [test]}
    evaluation:
      - {type: shop.stages.scores}
      - {type: keep_best}
      - {type: save_examples, columns: [id, label, predicted], limit: 5, sort_by: predicted}
    monitor: -val/wrong
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = write_shop(tmp_path / "shop")
    write(folder / "shop" / "stages.py", STAGES)
    write(folder / "pipes.yaml", PIPES)
    monkeypatch.chdir(folder)
    with forgetting(folder):
        yield folder


@pytest.fixture
def epochal(capsys: pytest.CaptureFixture[str]) -> Command:
    return command(capsys)


def read_lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_training_and_testing_is_one_command_whose_stages_know_their_splits(
    shop: Path, epochal: Command
) -> None:
    done = epochal("run", "pipes.yaml", "--then-test")
    assert done.code == 0, done.err
    trained, tested = run_folders(shop)
    lines = read_lines(trained / "outputs" / "val.jsonl")
    assert [line["id"] for line in lines] == list(range(24))
    assert {*lines[0]} == {"id", "logits", "label", "predicted"}
    best = json.loads((trained / "outputs" / "best.json").read_text())
    record = ep.read(trained)
    assert (best["monitor"], best["value"]) == ("val/wrong", record.result["best"])
    assert len(read_lines(trained / "outputs" / "best-val.jsonl")) == 24
    pages = [one for one in read_media(trained) if one.suffix == "html"]
    assert {one.name for one in pages} == {"val/examples"}
    assert pages[0].read_text().count("<tr>") == 6
    assert sorted(one.name for one in (tested / "outputs").iterdir()) == [
        "test.jsonl",
        "test.parquet",
    ]
    result = ep.read(tested).result["metrics"]
    assert result["test/wrong"] == best["value"]  # the same data, and the best weights
    assert "optim" not in ep.read(tested).expanded


def test_training_and_testing_without_test_data_is_refused_before_the_training(
    shop: Path, epochal: Command
) -> None:
    write(
        shop / "bare.yaml",
        """
        model: {type: shop.parts.Net}
        data: {train: {type: shop.parts.Rows}}
        loss: {type: cross_entropy, inputs: {input: out.outputs, target: batch.label}}
        optim: {type: SGD, lr: 0.1}
        """,
    )
    for words, message in (
        (("bare.yaml",), "data.test: there is no test data, which --then-test evaluates"),
        (("pipes.yaml", "--no-file"), "--then-test: cannot be combined with --no-file"),
    ):
        done = epochal("run", *words, "--then-test")
        assert done.code == 78, words
        assert message in done.err, words
    assert run_folders(shop) == []


def test_mistakes_in_pipes_are_reported_with_places(shop: Path, epochal: Command) -> None:
    write(
        shop / "wrong.yaml",
        """
        $BASE: config.yaml
        outputs:
          - {type: colect, columns: {a: out.logits}}
          - {type: collect, columns: {a: logits}}
          - {type: save_json_lines, on: [train]}
        evaluation:
          - {type: keep_best}
          - {type: save_examples, limits: 5}
          - {type: shop.stages.misspelt}
        monitor: null
        """,
    )
    done = epochal("check", "wrong.yaml")
    assert done.code == 78
    for message in (
        "outputs.0.type: unknown output 'colect'\n  set in wrong.yaml:3",
        "outputs.1.columns.a: must be out, batch, or a path into one of them, got 'logits'\n"
        "  set in wrong.yaml:4",
        "outputs.2.on.0: outputs have no stages in 'train'\n  set in wrong.yaml:5",
        "evaluation.0: KeepBest needs a monitor, and the run has none\n  set in wrong.yaml:7",
        "evaluation.1.limits: unknown argument 'limits'",
        "evaluation.2: shop.stages.misspelt takes 'sample'\n  set in wrong.yaml:9",
    ):
        assert message in done.err + done.out, done.err + done.out


def test_a_killed_prediction_of_a_file_continues(shop: Path, epochal: Command) -> None:
    stages = "outputs=[{type: collect, columns: {logits: out.logits, of: batch.gone}}]"
    checked = "train.sanity_batches=0", "train.eval_every=0"
    options = (stages, "evaluation=[]", "monitor=null", *checked)
    assert epochal("run", "pipes.yaml", *options).code == 0
    rows = [{"point": [float(one), 0.0, 1.0, -float(one)]} for one in range(20)]
    (shop / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("predict", "last", "--input", "in.jsonl", "--batch-size", "3")
    assert epochal(*words, "--output", "whole.jsonl").code == 0
    source = (
        "import sys, epochal.engine.prediction_file as one; one._SYNC_SECONDS = -1.0;"
        "from epochal.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    env = {**os.environ, "DIE_AT": "4"}
    killed = Child("-c", source, *words, "--output", "out.jsonl", cwd=shop, env=env).end()
    assert killed.returncode == -signal.SIGKILL, killed
    assert not (shop / "out.jsonl").exists()
    done = epochal(*words, "--output", "out.jsonl")
    assert done.code == 0, done.err
    assert "resumed after 12 predictions" in done.out + done.err
    assert (shop / "out.jsonl").read_text() == (shop / "whole.jsonl").read_text()
    assert [row["id"] for row in read_lines(shop / "out.jsonl")] == list(range(20))
    assert [path.name for path in shop.glob(".out*")] == []
    value = ep.predict("last", input="in.jsonl", output=shop / "p.parquet").value
    assert (value.path, value.count) == (shop / "p.parquet", 20)


def test_a_prediction_is_not_continued_after_its_input_changed(
    shop: Path, epochal: Command
) -> None:
    assert epochal("run", "config.yaml", "--fast").code == 0
    points = [[float(one), 0.0, 1.0, 0.0] for one in range(6)]
    words = ("predict", "last", "--input", "in.jsonl", "--batch-size", "1", "--output", "o.jsonl")

    def write_points() -> None:
        (shop / "in.jsonl").write_text("".join(json.dumps({"x": one}) + "\n" for one in points))

    points[4] = [1.0]
    write_points()
    for message in ("same command continues", "o.jsonl: resumed after 4 predictions"):
        done = epochal(*words)
        assert done.code == 1
        assert message in done.out + done.err
    points[0], points[4] = points[5], points[5]
    write_points()
    done = epochal(*words)
    assert done.code == 0, done.err
    assert "resumed after" not in done.out + done.err
    lines = read_lines(shop / "o.jsonl")
    assert [lines[at]["logits"] == lines[5]["logits"] for at in range(6)] == [
        *(True, False, False, False, True, True)
    ]


def test_inputs_that_cannot_be_read_are_refused(shop: Path, epochal: Command) -> None:
    assert epochal("run", "config.yaml", "--fast").code == 0
    (shop / "bad.jsonl").write_text("{")
    (shop / "list.jsonl").write_text("[1]\n")
    (shop / "in.xls").write_text("x")
    runs = len(run_folders(shop))
    for words, message in (
        (("--input", "gone.jsonl"), "--input: there is no file 'gone.jsonl'"),
        (("--input", "in.xls"), "in.xls: cannot read this kind of file use .jsonl"),
        (("--input", "s3x://b/in.xls"), "s3x://b/in.xls: cannot read this kind of file"),
        (("--input", "bad.jsonl"), "bad.jsonl: a line is no JSON"),
        (("--input", "list.jsonl"), "list.jsonl: has no rows with named columns"),
        (("--output", "out.txt"), "--output: cannot write this kind of file: 'out.txt'"),
        (("--batch-size", "4"), "batch_size: is the number of rows of an input"),
        (
            ("--input", "list.jsonl", "--batch-size", "0"),
            "data.predict.batch_size: must be at least 1, got 0",
        ),
    ):
        done = epochal("predict", "last", *words)
        assert done.code in (65, 78), words
        shown = "".join(done.err.replace("│", "").split())  # the panel wraps long paths anywhere
        assert "".join(message.split()) in shown, (words, done.err)
    assert "--split: unknown split 'vall'" in epochal("evaluate", "last", "--split", "vall").err
    assert len(run_folders(shop)) == runs + 2  # of the two files that were opened


def test_checkpoints_are_evaluated_beside_the_training_until_it_ends(shop: Path) -> None:
    write(
        shop / "shop" / "gate.py",
        """
        import epochal as ep

        class Gate(ep.Hook):
            def epoch_start(self, run, split):
                if split == "train" and run.epoch == 2:
                    open("gate").read()  # a pipe: waits for a writer
        """,
    )
    os.mkfifo(shop / "gate")
    options = ("train.for=3ep", "checkpoint.keep_last=null", "hooks=[{type: shop.gate.Gate}]")
    training = Child("-m", "epochal", "run", "config.yaml", *options, cwd=shop)
    for line in training.stdout:
        if "Epoch [2/3]  val" in line:
            break
    words = ("evaluate", "last", "--watch", "hooks=[]", "runner.every_seconds=0.2")
    watching = Child("-m", "epochal", *words, cwd=shop)
    seen = 0
    for line in watching.stdout:
        seen += " val " in line
        if seen == 2:
            break
    (shop / "gate").write_text("")
    assert training.end().returncode == 0
    done = watching.end()
    assert done.returncode == 0, done
    trained, watched = (ep.read(folder) for folder in run_folders(shop))
    assert watched.run["parent"] == {"kind": "watch", "run": trained.path.name}
    ours, theirs = (
        [list(numbers) for numbers in record.points.series("val/acc")]
        for record in (watched, trained)
    )
    assert ours == theirs
    assert ours[0] == [6, 12, 18]


def test_checkpoints_that_exist_are_evaluated_once(shop: Path, epochal: Command) -> None:
    assert epochal("run", "config.yaml", "checkpoint.keep_last=null").code == 0
    done = epochal("evaluate", "last", "--once", "--split", "test")
    assert done.code == 0, done.err
    trained, watched = (ep.read(folder) for folder in run_folders(shop))
    assert list(watched.points.series("test/acc")[0]) == [6, 12]
    assert watched.result["metrics"]["test/acc"] == trained.result["metrics"]["val/acc"]
    assert "test/acc" not in trained.result["metrics"]
    shutil.rmtree(trained.path / "checkpoints")
    done = epochal("evaluate", trained.path, "--device", "cpu,cpu")
    assert "--device: checkpoints are evaluated in one process" in done.err
    done = epochal("evaluate", trained.path)
    assert done.code == 74
    assert "has no checkpoint to evaluate" in " ".join(done.err.replace("│", " ").split())
