"""Tests of experiments made in Python."""

from __future__ import annotations

import gc
import shutil
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import epochal as ep
from epochal.components.metrics import Mean
from epochal.errors import CheckpointError, ConfigError, DataError, RecordError
from epochal.records import read_run
from epochal.testing import TinyModel, TinyTask
from small_project import tree, write

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.experiment.build.builder import Assembly

SGD = {"type": "SGD", "lr": 0.1}
QUIET = {"console_every": 0, "level": "error"}


class Keep(ep.Hook):
    """Keeps a copy of the weights with which a run ended."""

    weights: dict[str, Tensor]

    def run_end(self, run: ep.Run) -> None:
        self.weights = {name: value.clone() for name, value in run.model.state_dict().items()}


def make(kind: type[ep.Experiment] = ep.Experiment, **sections: Any) -> ep.Experiment:
    sections = {"optim": SGD, "train": {"for": "2ep"}, "log": QUIET} | sections
    return kind(choices={"no_file": True, "device": "cpu"}, **sections)


def parts() -> dict[str, object]:
    """A task and a model with the weights that a run with seed 0 would give."""
    from epochal.engine.device.seeding import derive_seed, seeded

    with seeded(derive_seed(0, "model")):
        return {"task": TinyTask(), "model": TinyModel()}


def fit(experiment: ep.Experiment) -> ep.RunResult:
    result = experiment.fit()
    assert result.ok, result.traceback
    return result


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class Prepared(ep.Experiment):
    @staticmethod
    def prepare_task(args: ep.Args) -> ep.Task:
        return TinyTask()

    @staticmethod
    def prepare_model(args: ep.Args) -> nn.Module:
        return TinyModel()


def test_objects_are_enough_for_an_experiment() -> None:
    result = fit(make(**parts()))
    assert (result.status, result.reason, result.epochs, result.steps) == (
        "finished",
        "max_epochs",
        2,
        12,
    )
    assert {"train/epoch/loss", "val/acc"} <= result.metrics.keys()


def test_objects_prepare_methods_and_config_train_bit_for_bit_alike(shop: Path) -> None:
    one, two, three = Keep(), Keep(), Keep()
    fit(make(**parts(), hooks=[one]))
    fit(make(Prepared, hooks=[two]))
    fit(make(task={"type": "shop.parts.Points"}, model={"type": "shop.parts.Net"}, hooks=[three]))
    assert equal(one.weights, two.weights)
    assert equal(one.weights, three.weights)


def test_prepare_methods_may_be_assigned() -> None:
    def build_model(args: ep.Args) -> nn.Module:
        return TinyModel(dropout=args.extra.dropout)

    class Assigned(Prepared):
        prepare_model = staticmethod(build_model)

    assert fit(make(Assigned, extra={"dropout": 0.0})).ok


def test_missing_prepare_method_says_what_to_write() -> None:
    class Half(ep.Experiment):
        @staticmethod
        def prepare_task(args: ep.Args) -> ep.Task:
            return TinyTask()

    result = make(Half).fit(raise_errors=False)
    assert result.exit_code == 78
    assert "model: missing" in result.message
    for name in ("prepare_task", "prepare_model"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(ep.Experiment, name)(ep.Args())


def test_an_experiment_of_objects_starts_no_processes_and_says_so() -> None:
    for choices in ({"nproc": 2}, {"device": "0,1"}, {"gpus": 2}):
        with pytest.raises(ep.ConfigError, match="cannot start 2 processes"):
            ep.Experiment(**parts(), optim="sgd", choices=choices).fit(epochs=1)


def test_epochs_of_fit_override_the_config() -> None:
    assert make(**parts()).fit(epochs=3).epochs == 3


def test_test_and_predict_need_no_optimizer() -> None:
    experiment = ep.Experiment(
        choices={"no_file": True, "device": "cpu"},
        log=QUIET,
        **parts(),  # type: ignore[arg-type]
    )
    tested = experiment.test()
    assert tested.ok, tested.traceback
    assert set(tested.metrics) == {"test/acc"}
    predicted = experiment.predict()
    assert predicted.ok, predicted.traceback
    assert sum(len(batch["logits"]) for batch in predicted.value) == 24


def test_test_switch_evaluates_only() -> None:
    result = ep.Experiment(
        test=True,
        choices={"no_file": True, "device": "cpu"},
        log=QUIET,
        **parts(),  # type: ignore[arg-type]
    ).run()
    assert result.ok, result.traceback
    assert result.steps == 0
    assert "test/acc" in result.metrics


def test_args_of_a_script_make_an_experiment(shop: Path) -> None:
    args = ep.parse_args(["-c", "config.yaml", "--no-file", "--fast", "--device", "cpu"])
    result = ep.Experiment(args).fit()
    assert result.ok, result.traceback
    assert result.steps == 3
    assert not (shop / "runs").exists()


def test_test_option_of_a_script_evaluates_only(shop: Path) -> None:
    args = ep.parse_args(["-c", "config.yaml", "--no-file", "--test", "--device", "cpu"])
    result = ep.Experiment(args).run()
    assert result.ok, result.traceback
    assert set(result.metrics) == {"test/acc"}


def test_check_reports_without_running(shop: Path) -> None:
    before = tree(shop)
    report = ep.Experiment("config.yaml", overrides=["modle.x=1"]).check()
    assert any("modle" in str(problem) for problem in report.problems)
    assert tree(shop) == before


class TakesApart(ep.Experiment):
    """Replaces the one step that ``only`` names, and notes that it was called."""

    only = ""

    def __init__(self, **sections: Any) -> None:
        super().__init__(choices={"no_file": True, "device": "cpu"}, **sections)
        self.called: list[str] = []

    def note(self, name: str) -> bool:
        self.called.append(name)
        return self.only == name

    def build_task(self, assembly: Assembly) -> ep.Task:
        return TinyTask(num_samples=8) if self.note("task") else super().build_task(assembly)

    def build_data(self, assembly: Assembly, task: ep.Task) -> None:
        if self.note("data"):
            task.train_loader = list(task.train_loader)[:1]
        else:
            super().build_data(assembly, task)

    def build_model(self, assembly: Assembly) -> nn.Module:
        return TinyModel(dropout=0) if self.note("model") else super().build_model(assembly)

    def place_model(self, assembly: Assembly, model: nn.Module) -> nn.Module:
        if self.note("place"):
            for parameter in model.parameters():
                parameter.data.zero_()
            return model
        return super().place_model(assembly, model)

    def build_metrics(self, assembly: Assembly) -> dict[str, ep.Metric]:
        own: dict[str, ep.Metric] = {"mine": Mean()}
        return own if self.note("metrics") else super().build_metrics(assembly)

    def build_optimizer(self, assembly: Assembly, model: nn.Module) -> Any:
        if self.note("optimizer"):
            return torch.optim.Adam(model.parameters(), lr=0.5), None
        return super().build_optimizer(assembly, model)

    def build_hooks(self, assembly: Assembly) -> list[object]:
        self.keep = Keep()
        extra = [self.keep]
        return [*extra, *super().build_hooks(assembly)] if self.note("hooks") else extra


def test_each_build_step_can_be_replaced_alone() -> None:
    def take(only: str) -> tuple[TakesApart, ep.RunResult]:
        kind = type("Own", (TakesApart,), {"only": only})
        experiment = kind(optim=SGD, train={"for": "1ep"}, log=QUIET, **parts())
        return experiment, fit(experiment)

    plain, result = take("")
    assert plain.called == ["task", "data", "model", "place", "optimizer", "hooks", "metrics"]
    assert result.steps == 6
    assert take("task")[1].steps == 2
    assert take("data")[1].steps == 1
    assert "val/mine" in take("metrics")[1].metrics
    for step in ("model", "place", "optimizer"):
        other, _ = take(step)
        assert not equal(other.keep.weights, plain.keep.weights), step
    same, _ = take("hooks")
    assert equal(same.keep.weights, plain.keep.weights)


def test_hooks_may_be_objects_functions_and_specs() -> None:
    seen: list[str] = []

    class RunStart(ep.Hook):
        def run_start(self, run: ep.Run) -> None:
            seen.append("object")

    def middleware(run: ep.Run) -> None:
        seen.append("function")
        forward = run.task.batch_forward
        run.replace_task_method("batch_forward", forward)
        run.register_caches({"scale": 2.0})

    stopping = {"type": "EarlyStopping", "patience": 1, "upper_bound": -1.0}
    result = fit(make(**parts(), monitor="+val/acc", hooks=[RunStart(), middleware, stopping]))
    assert seen == ["function", "object"]
    assert (result.status, result.reason) == ("stopped", "early_stop")


def test_metrics_may_be_objects() -> None:
    result = fit(make(**parts(), metrics=[Mean()]))
    assert "val/mean" in result.metrics


def test_output_and_evaluation_stages_may_be_objects_functions_and_specs() -> None:
    seen: list[list[str]] = []

    class Seen(ep.EvaluationStage):
        def evaluate(self, samples: dict[str, Any]) -> dict[str, float]:
            seen.append(sorted(samples))
            return {"seen": float(len(samples["half"]))}

    def halve(samples: dict[str, Any]) -> dict[str, Any]:
        return {**samples, "half": samples["logits"] / 2}

    collect = {"type": "collect", "columns": {"logits": "out.logits"}}
    result = fit(make(**parts(), outputs=[collect, halve], evaluation=[Seen()]))
    assert result.metrics["val/seen"] == 24
    assert {"half", "logits"} <= {*seen[0]}
    with pytest.raises(
        ConfigError, match=r"evaluation: is the class 'Seen'.*\n.*evaluation=\[Seen"
    ):
        make(**parts(), evaluation=[Seen])
    with pytest.raises(ConfigError, match=r"outputs: a spec follows an object.*\n.*specs first"):
        make(**parts(), outputs=[halve, collect])


def test_classes_with_other_labels_than_in_training_are_refused(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")

    def build(split: str, *names: str) -> Any:
        for name in names:
            (tmp_path / split / name).mkdir(parents=True, exist_ok=True)
        image.new("RGB", (2, 2)).save(tmp_path / split / names[0] / "a.png")
        return ep.data.chain(ep.data.ImageFolder(str(tmp_path / split)))

    task = type("Bare", (TinyTask,), {"__init__": lambda self: None})()
    for train, val, missing in (
        (("cat", "dog", "eel"), ("cat", "eel"), "b/dog"),
        (("cat", "eel"), ("ant", "cat", "eel"), "a/ant"),
    ):
        shutil.rmtree(tmp_path)
        data = {"train": build("a", *train), "val": build("b", *val)}
        with pytest.raises(DataError, match=rf"data\.val: the class '.*\n.*mkdir .*{missing}$"):
            fit(make(task=task, model=TinyModel(), data=data))


def test_chains_and_pipes_may_be_objects() -> None:
    rows = [{"x": torch.randn(4), "label": torch.tensor(i % 3)} for i in range(6)]
    task = type("Bare", (TinyTask,), {"__init__": lambda self: None})()
    chain = ep.data.chain(rows, ep.data.Batch(3))
    pipes = {"pipes": [rows, ep.data.Shuffle(), dict.copy], "batch_size": 2}
    result = fit(make(task=task, model=TinyModel(), data={"train": pipes, "val": chain}))
    assert result.steps == 6
    assert "val/acc" in result.metrics
    wrong = make(task=task, model=TinyModel(), data={"train": {"pipes": [rows], "batchsize": 2}})
    with pytest.raises(ConfigError, match=r"data.train.batchsize: unknown key.*\n.*batch_size"):
        wrong.fit()


def test_loaders_may_be_objects() -> None:
    rows = [{"x": torch.randn(4), "label": torch.tensor(i % 3)} for i in range(6)]
    task = type("Bare", (TinyTask,), {"__init__": lambda self: None})()
    loaders = {"train": DataLoader(rows, batch_size=3), "dev": {"a": DataLoader(rows)}}  # type: ignore[arg-type]
    result = fit(make(task=task, model=TinyModel(), data=loaders))
    assert result.steps == 4
    assert "val/a/acc" in result.metrics
    taken = make(**parts(), data={"train": [1]}).fit(raise_errors=False)
    assert taken.exit_code == 78, "the task has a loader"


def test_optimizer_and_schedule_may_be_objects() -> None:
    model = TinyModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    fit(make(task=TinyTask(), model=model, optim=optimizer, schedule=schedule))
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1**13)


def test_own_runner_decides_what_is_done() -> None:
    class Count(ep.Runner):
        def run(self, run: ep.Run) -> int:
            return sum(p.numel() for p in run.model.parameters())

    result = make(**parts(), runner=Count()).run()
    assert result.ok, result.traceback
    assert (result.value, result.steps) == (15, 0)


def test_own_runner_can_be_named_in_the_config(shop: Path) -> None:
    choices = {"no_file": True, "device": "cpu"}
    runner = {"type": "shop.parts.Bragging", "word": "hi"}
    result = ep.Experiment("config.yaml", runner=runner, choices=choices).run()  # type: ignore[arg-type]
    assert result.ok, result.traceback
    assert result.value == "hi"


def test_current_run_is_available_in_user_code() -> None:
    seen: list[ep.Run] = []

    class Task(TinyTask):
        def batch_loss(self, out: Any, batch: Any) -> Any:
            seen.append(ep.current_run())
            return super().batch_loss(out, batch)

    fit(make(task=Task(), model=TinyModel()))
    assert len({id(run) for run in seen}) == 1
    with pytest.raises(ep.EpochalError, match="no run is in progress"):
        ep.current_run()


@pytest.mark.usefixtures("older_objects_are_kept")
def test_model_is_free_when_the_run_is_over() -> None:
    class Broken(TinyModel):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("no")

    for kind, status in ((TinyModel, "finished"), (Broken, "failed")):
        given = {"task": TinyTask(), "model": kind()}
        reference = weakref.ref(given["model"])
        result = make(**given).fit(raise_errors=False)
        given.clear()
        gc.collect()
        assert result.status == status
        assert reference() is None, status


def run_and_its_meter() -> list[weakref.ref[Any]]:
    parts: list[weakref.ref[Any]] = []

    def attend(run: ep.Run) -> None:
        parts.extend([weakref.ref(run), weakref.ref(run.meter)])

    assert fit(make(task=TinyTask(), model=TinyModel(), hooks=[attend])).ok
    return parts


@pytest.mark.usefixtures("older_objects_are_kept")
def test_a_run_with_its_default_hooks_is_freed_at_once() -> None:
    run_and_its_meter()  # what libraries keep from their first time
    gc.collect()
    gc.disable()
    try:
        assert [part() for part in run_and_its_meter()] == [None, None]
    finally:
        gc.enable()


def test_record_that_cannot_be_made_gives_a_result(shop: Path) -> None:
    (shop / "file").write_text("not a folder")
    experiment = ep.Experiment("config.yaml", record={"log_dir": "file/runs"})
    assert experiment.fit(raise_errors=False).exception_type == "RecordError"


def test_failure_of_an_experiment_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(TinyTask):
        def batch_loss(self, out: Any, batch: Any) -> Any:
            raise ValueError("no loss today")

    assert make(task=Broken(), model=TinyModel()).fit(raise_errors=False).status == "failed"
    printed = capsys.readouterr().err
    assert printed.startswith("╭─ run failed: ValueError ─")
    assert "no loss today" in printed
    assert "test_experiment.py:" in printed


def test_misspelt_methods_of_a_subclass_are_refused() -> None:
    for name, meant in {
        "prepare_modle": "prepare_model",
        "build_modle": "build_model",
        "buildhooks": "build_hooks",
    }.items():
        kind = type("Own", (ep.Experiment,), {name: lambda self: None})
        for one in (kind, type("Heir", (kind,), {})):
            with pytest.raises(ConfigError, match=f"has a method '{name}'") as caught:
                one()
            assert f"did you mean '{meant}'?" in str(caught.value)
    own = {name: lambda self: None for name in ("build_backbone", "_build_modle", "report")}
    assert type("Own", (ep.Experiment,), own)()


class Caches(ep.Hook):
    """Keeps the caches that a run has at its end."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def run_end(self, run: ep.Run) -> None:
        self.found.append(dict(run.caches))


def test_hooks_and_caches_can_be_registered_before_the_run() -> None:
    called: list[ep.Run] = []
    hook = Caches()
    experiment = make(**parts())
    experiment.register(hook, called.append)
    experiment.register_cache({"mean": 0.5}, std=2)
    experiment.fit()
    experiment.test()
    assert hook.found == [{"mean": 0.5, "std": 2}] * 2
    assert len(called) == 2
    with pytest.raises(ConfigError, match="is the class 'Caches', not an object of it"):
        experiment.register(Caches)


def test_caches_of_the_training_are_there_when_its_weights_are_evaluated(shop: Path) -> None:
    experiment = ep.Experiment("config.yaml")
    experiment.register_cache(mean=torch.ones(2))
    folder = experiment.fit().dir
    for weights in (folder, folder / "checkpoints" / "final.safetensors"):
        for name in ("test", "predict"):
            hook = Caches()
            other = ep.Experiment("config.yaml", overrides=[f"init_from={weights}"], hooks=[hook])
            getattr(other, name)()
            assert torch.equal(hook.found[0]["mean"], torch.ones(2)), (weights, name)


def test_hooks_of_python_are_added_to_those_of_the_file(
    shop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(shop / "hooked.yaml", "$BASE: config.yaml\nhooks: [CsvLog]\n")
    seen: list[list[str]] = []

    def names(run: ep.Run) -> None:
        seen.append([type(hook).__name__ for hook in run.hooks])

    given = [names, {"type": "JsonLines"}]
    result = ep.Experiment("hooked.yaml", hooks=given, metrics=[], choices={"fast": True}).fit()
    assert {"CsvLog", "JsonLines", "_Middleware"} <= set(seen[0])
    assert [hook["type"] for hook in result.config["hooks"]] == ["CsvLog", "JsonLines"]
    assert "hooks: 1 of the config, 2 given by Python" in caplog.text


def test_the_test_switch_holds_for_fit_and_takes_the_weights_of_a_named_run(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = ep.run("config.yaml")
    (shop / "config.yaml").write_text((shop / "config.yaml").read_text().replace("optim", "extra"))
    best = read_run(trained.dir).best("val/acc", "max")
    file = str(trained.dir / "checkpoints" / "final.safetensors")
    best_said = f"best (step {best.step}, val/acc {best.value:.4f}) of {trained.dir.name}"
    for words, expected, said in (
        (["--ckp", str(trained.dir)], best.value, best_said),
        (["--ckp", "last", "--from", "last"], trained.metrics["val/acc"], "last (step 12, val"),
        (["--ckp", str(trained.dir / "checkpoints" / "best")], best.value, best_said),
        (["--ckp", file], None, file),
        ([f"ckp_file={trained.dir}"], best.value, best_said),
    ):
        args = ep.parse_args(["-c", "config.yaml", "--test", *words])
        tested = ep.Experiment(args).fit()
        assert (tested.reason, tested.steps) == ("completed", 0), words
        assert "checkpoints" in str(tested.config["init_from"]), words
        if expected is not None:
            assert tested.metrics["test/acc"] == expected, words
        assert tested.weights.startswith(said), words
        assert f"\n  weights  {said}" in capsys.readouterr().out, words
    with pytest.raises(CheckpointError, match="has no weights 'gone'"):
        ep.Experiment(
            ep.parse_args(["-c", "config.yaml", "--test", *words, "--from", "gone"])
        ).fit()


def test_the_checkpoint_to_resume_can_be_a_key_of_the_config(shop: Path) -> None:
    first = ep.run("config.yaml")
    write(shop / "again.yaml", f"$BASE: config.yaml\ntag: shop\nckp_file: {first.dir}\n")
    assert ep.Experiment("again.yaml").check().ok
    again = ep.run("again.yaml", overrides=["train.for=3ep"])
    assert (again.dir, again.epochs) == (first.dir, 3)
    assert "ckp_file" not in read_run(first.dir).expanded
    with pytest.raises(RecordError, match="elsewhere"):
        ep.run("again.yaml", resume="elsewhere")


def test_validation_data_is_optional_for_a_task_with_an_error() -> None:
    class Unvalidated(TinyTask):
        def __init__(self) -> None:
            super().__init__()
            self.val_loader = None

        def post_metric_to_err(self, result: dict[str, float]) -> float:
            return 1 - result["acc"]

    result = make(task=Unvalidated(), model=TinyModel()).fit()
    assert result.ok
    assert result.best is None
