"""Whole runs that prove requirements which involve several packages."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.utils.data import Dataset

import epochal as ep
import forked
from epochal.engine.interfaces.monitor import Monitor
from epochal.errors import TaskError
from epochal.hooks.early_stopping import EarlyStopping
from epochal.testing import TinyModel, TinyTask, execute_run, short_options, tiny_run
from looking import look
from small_project import Command, write


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that registers a hook."""
    site = tmp_path / "site"
    for folder in ("greetings", "greetings-1.0.dist-info"):
        (site / folder).mkdir(parents=True)
    metadata = "Metadata-Version: 2.1\nName: greetings\nVersion: 1.0\n"
    write(site / "greetings-1.0.dist-info" / "METADATA", metadata)
    entries = "[epochal.hook]\nGreeter = greetings.hooks\n"
    write(site / "greetings-1.0.dist-info" / "entry_points.txt", entries)
    write(site / "greetings" / "__init__.py", "")
    write(
        site / "greetings" / "hooks.py",
        """
        import epochal as ep

        class Greeter(ep.Hook):
            def __init__(self, *, word: str = "hello") -> None:
                self.word = word

            def run_end(self, run: ep.Run) -> None:
                run.log({f"greeted/{self.word}": run.step})
        """,
    )
    monkeypatch.syspath_prepend(str(site))
    return site


def test_installed_package_adds_a_hook_that_a_config_uses_by_name(shop: Path, plugin: Path) -> None:
    hooks = "hooks=[{type: Greeter, word: hi}]"
    result = ep.run("config.yaml", overrides=[hooks], no_file=True, fast=True)
    assert result.ok, result.message
    assert result.metrics["greeted/hi"] == 3


def test_component_of_an_installed_package_is_checked_before_it_is_imported(
    shop: Path, plugin: Path
) -> None:
    hooks = "hooks=[{type: Greeter, words: hi}]"
    problems = ep.Experiment("config.yaml", overrides=[hooks]).check().problems
    assert [problem.key for problem in problems] == ["hooks.0.words"]
    assert problems[0].hint == "did you mean 'word'?"
    assert "greetings" not in sys.modules


def test_batch_and_output_can_be_given_another_form() -> None:
    seen: list[tuple[float, set[str]]] = []

    class Adapted(TinyTask):
        def pre_batch_forward(self, batch: Any) -> Any:
            return {**batch, "x": torch.full_like(batch["x"], 0.25)}

        def post_batch_forward(self, out: Any, batch: Any) -> Any:
            return {**out, "probability": out["logits"].softmax(1)}

        def batch_metric(self, out: Any, batch: Any) -> Any:
            seen.append((batch["x"].mean().item(), set(out)))
            return super().batch_metric(out, batch)

    execute_run(tiny_run(task=Adapted(), options=short_options(for_="1ep")))
    assert len(seen) > 6
    assert all(one == (0.25, {"logits", "probability"}) for one in seen)


class Eight(ep.Hook):
    """A hook with the eight events of solvers."""

    def __init__(self, *splits: str) -> None:
        self.on = splits or None
        self.events: list[str] = []

    def before_solve(self) -> None:
        self.events.append("before_solve")

    def after_solve(self) -> None:
        self.events.append("after_solve")

    def before_epoch(self, split: str) -> None:
        self.events.append(f"before_epoch {split}")

    def after_epoch(self, split: str) -> None:
        self.events.append(f"after_epoch {split}")

    def before_all_iter(self, split: str) -> None:
        self.events.append(f"before_all_iter {split}")

    def after_all_iter(self, split: str) -> None:
        self.events.append(f"after_all_iter {split}")

    def before_iter(self, split: str, index: int) -> None:
        self.events.append(f"before_iter {split} {index}")

    def after_iter(self, split: str, index: int) -> None:
        self.events.append(f"after_iter {split} {index}")


def events_of(hook: Eight) -> list[str]:
    task = TinyTask(num_samples=8)
    execute_run(tiny_run(hook, task=task, options=short_options(for_="1ep", sanity_batches=0)))
    return hook.events


def one_epoch(split: str) -> list[str]:
    batches = [f"{edge}_iter {split} {index}" for index in (0, 1) for edge in ("before", "after")]
    loop = [f"before_all_iter {split}", *batches, f"after_all_iter {split}"]
    return [f"before_epoch {split}", *loop, f"after_epoch {split}"]


def test_solver_events_are_called_by_their_alias() -> None:
    epochs = [*one_epoch("train"), *one_epoch("val")]
    assert events_of(Eight()) == ["before_solve", *epochs, "after_solve"]


def test_hook_of_one_split_is_called_at_the_start_and_end_of_the_run() -> None:
    assert events_of(Eight("val")) == ["before_solve", *one_epoch("val"), "after_solve"]


def test_model_from_prepare_model_is_moved_to_the_device() -> None:
    prepared: list[nn.Module] = []
    placed: list[nn.Module] = []

    class Own(ep.Experiment):
        @staticmethod
        def prepare_task(args: ep.Args) -> ep.Task:
            return TinyTask()

        @staticmethod
        def prepare_model(args: ep.Args) -> nn.Module:
            prepared.append(TinyModel())
            return prepared[0]

        def place_model(self, assembly: Any, model: nn.Module) -> nn.Module:
            placed.append(model)
            return super().place_model(assembly, model)

    result = Own(
        optim={"type": "SGD"}, choices={"no_file": True, "fast": True, "device": "cpu"}
    ).fit()
    assert result.ok, result.traceback
    assert placed == prepared


def test_datasets_take_transforms_and_loaders_take_functions_by_name(shop: Path) -> None:
    write(
        shop / "shop" / "images.py",
        """
        import torch

        class Scale:
            def __init__(self, by: float): self.by = by
            def __call__(self, x): return x * self.by

        class Shift:
            def __init__(self, by: float): self.by = by
            def __call__(self, x): return x + self.by

        class Images(torch.utils.data.Dataset):
            def __init__(self, *, transforms: list = ()): self.transforms = transforms
            def __len__(self): return 6
            def __getitem__(self, index):
                x = torch.full((4,), float(index))
                for transform in self.transforms:
                    x = transform(x)
                return x

        def stack(samples):
            return {"x": torch.stack(samples), "label": torch.zeros(len(samples), dtype=int)}
        """,
    )
    transforms = "[{type: shop.images.Scale, by: 10}, {type: shop.images.Shift, by: 1}]"
    options = f"type: shop.images.Images, transforms: {transforms}, batch_size: 2"
    data = f"{{{options}, collate: shop.images.stack}}"
    changes = [
        "task={type: shop.parts.Fed}",
        *(f"data.{s}={data}" for s in ("train", "val", "test")),
    ]

    def find(run: ep.Run) -> list[float]:
        (first, *_) = run.task.test_loader
        return [float(x) for x in first["x"][:, 0]]

    assert look(find, *changes) == [1.0, 11.0]
    tested = ep.run(
        "config.yaml", overrides=[*changes, "runner=test", "optim=$delete"], no_file=True
    )
    assert tested.ok, tested.message
    assert set(tested.metrics) == {"test/acc"}


def test_a_loader_takes_a_sampler_and_a_collate_by_their_registered_names(shop: Path) -> None:
    write(
        shop / "shop" / "rows.py",
        """
        import torch
        import epochal as ep

        class Rows(ep.data.ListDataset):
            def list_samples(self): return list(range(9))
            def load(self, number): return torch.full((4,), float(number))

        @ep.register("sampler", "backwards")
        class Backwards:
            def __init__(self, dataset, keep: int = 3): self.dataset, self.keep = dataset, keep
            def __iter__(self): return iter(range(len(self.dataset))[::-1][: self.keep])
            def __len__(self): return self.keep

        def double(x): return x * 2

        @ep.register("collate", "stacked")
        class Stacked:
            def __call__(self, samples):
                return {"x": torch.stack(samples), "label": torch.zeros(len(samples), dtype=int)}
        """,
    )
    rows = "type: shop.rows.Rows, slice: [6], transforms: [shop.rows.double], batch_size: 2"
    weights = "[0, 0, 0, 1, 0, 0]"
    for sampler, expected in (
        ("backwards", [10, 8, 6]),
        ("{type: backwards, keep: 2}", [10, 8]),
        ("{type: shop.rows.Backwards, keep: 2}", [10, 8]),
        ("SequentialSampler", [0, 2, 4, 6, 8, 10]),
        (f"{{type: WeightedRandomSampler, weights: {weights}, num_samples: 3}}", [6, 6, 6]),
    ):
        changes = [
            "imports=[shop.rows]",
            "task={type: shop.parts.Fed}",
            "monitor=null",
            f"data={{train: {{{rows}, collate: stacked, sampler: {sampler}}}}}",
        ]
        loader = look(lambda run: run.task.train_loader, *changes)
        seen = torch.cat([batch["x"][:, 0] for batch in loader])
        assert seen.tolist() == expected, sampler


def test_lists_of_a_toml_file_become_the_tuples_of_the_optimizer(shop: Path) -> None:
    config = write(
        shop / "adam.toml",
        """
        task = {type = "shop.parts.Points"}
        model = {type = "shop.parts.Net"}
        optim = {type = "AdamW", lr = 1, betas = [0.5, 0.75]}
        """,
    )
    group = look(lambda run: run.optimizer.param_groups[0], source=config)
    assert group["betas"] == (0.5, 0.75)
    assert isinstance(group["betas"], tuple)
    assert isinstance(group["lr"], float)


def test_dataset_that_captured_the_run_cannot_reach_a_worker(shop: Path) -> None:
    class Capturing(Dataset[int]):
        def __init__(self, run: ep.Run) -> None:
            self.run = run

    with pytest.raises(TaskError, match=r"cannot be sent to another process(.|\n)*send only"):
        pickle.dumps(Capturing(tiny_run()).run)


def test_mismatched_states_are_errors_defect_9(shop: Path) -> None:
    with pytest.raises(KeyError, match="best"):
        Monitor.parse("+val/acc").load_state_dict({"value": 1.0})
    with pytest.raises(KeyError, match="own"):
        EarlyStopping(patience=1).load_state_dict({})
    first = ep.run("config.yaml", device="cpu")
    assert first.dir is not None
    weights = first.dir / "checkpoints" / "final.safetensors"
    other = {"type": "torch.nn.Linear", "in_features": 4, "out_features": 2}
    changes = [f"init_from={weights}", f"model={json.dumps(other)}"]
    result = ep.run("config.yaml", overrides=changes, device="cpu", raise_errors=False)
    assert (result.status, result.exit_code, result.steps) == ("failed", 74, 0)


def test_missing_weights_are_an_error_and_not_a_fresh_start_defect_25(shop: Path) -> None:
    gone = ["init_from=gone.safetensors"]
    result = ep.run("config.yaml", overrides=gone, no_file=True, raise_errors=False)
    assert (result.status, result.exit_code, result.steps) == ("failed", 78, 0)
    assert "no such file: 'gone.safetensors'" in result.message


def test_task_metadata_is_saved_in_record_and_weights(shop: Path) -> None:
    result = ep.run("config.yaml", fast=True, device="cpu")
    assert result.dir is not None
    classes = ["red", "green", "blue"]
    assert json.loads((result.dir / "run.json").read_text("utf-8"))["meta"]["classes"] == classes
    with safe_open(result.dir / "checkpoints" / "final.safetensors", "pt") as file:
        assert json.loads(file.metadata()["meta"])["classes"] == classes


def test_one_monitor_serves_early_stopping_and_the_plateau_schedule(shop: Path) -> None:
    rates: list[float] = []

    class Watch(ep.Hook):
        def run_end(self, run: ep.Run) -> None:
            rates.append(run.learning_rates["lr"])

    plateau = "mode: max, factor: 0.5, patience: 0, threshold: 2.0, threshold_mode: abs"
    changes = [
        "train.for=9ep",
        "monitor={metric: val/acc, mode: max, min_delta: 2.0}",  # no value is so much better
        f"schedule={{type: ReduceLROnPlateau, {plateau}}}",
    ]
    hooks = [Watch(), {"type": "EarlyStopping", "patience": 3}]
    choices: Any = {"no_file": True, "device": "cpu"}
    result = ep.Experiment("config.yaml", overrides=changes, choices=choices, hooks=hooks).fit()
    assert result.message == ""
    assert (result.reason, result.epochs) == ("early_stop", 4)
    assert rates == [0.05 * 0.5**3]


DEBUGGED = """
from shop.parts import Points

class Stopping(Points):
    def batch_loss(self, out, batch):
        if not hasattr(self, "stopped"):
            self.stopped = True
            breakpoint()
        return super().batch_loss(out, batch)
"""


def test_debugger_works_inside_a_debug_run(shop: Path) -> None:
    write(shop / "shop" / "stopping.py", DEBUGGED)
    words = ["run", "config.yaml", "task.type=shop.stopping.Stopping", "--debug", "--fast"]
    typed = "p sorted(out)\np batch['label'].shape\ncontinue\n"
    done = forked.run("-m", "epochal", *words, "--no-file", "--device", "cpu", input=typed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "['logits']" in done.stdout
    assert "torch.Size([4])" in done.stdout
    assert "finished" in done.stdout


def test_a_failed_debug_run_opens_the_debugger_where_it_failed(shop: Path) -> None:
    failing = DEBUGGED.replace("breakpoint()", "raise ValueError('not today')")
    write(shop / "shop" / "failing.py", failing)
    words = ["run", "config.yaml", "task.type=shop.failing.Stopping", "--debug", "--fast"]
    for typed, shown in (("p sorted(out)\n", "['logits']"), ("", "")):
        done = forked.run("-m", "epochal", *words, "--device", "cpu", input=typed)
        assert done.returncode == 1, typed
        assert "not today" in done.stderr, typed
        assert shown in done.stdout, typed


def test_leaving_the_debugger_interrupts_the_run(shop: Path) -> None:
    write(shop / "shop" / "stopping.py", DEBUGGED)
    words = ["run", "config.yaml", "task.type=shop.stopping.Stopping", "--debug", "--fast"]
    done = forked.run("-m", "epochal", *words, "--device", "cpu", input="q\n")
    assert done.returncode == 130, done.stdout + done.stderr
    assert "run interrupted" in done.stderr
    assert "stopped in the debugger after" in done.stderr
    assert "BdbQuit" not in done.stdout + done.stderr


def test_only_the_entry_loss_is_trained() -> None:
    """Only the entry ``loss`` is minimised; further entries are logged."""

    class Two(TinyTask):
        def batch_loss(self, out: Any, batch: Any) -> dict[str, tuple[Tensor, int]]:
            losses = super().batch_loss(out, batch)
            return {**losses, "size": (out["logits"].square().mean() * 1e6, len(batch["label"]))}

    def trained(task: TinyTask) -> tuple[Tensor, ep.RunResult]:
        torch.manual_seed(0)
        model = TinyModel()
        result = execute_run(tiny_run(task=task, model=model, options=short_options(for_="1ep")))
        return model.linear.weight.detach(), result

    plain, _ = trained(TinyTask())
    both, result = trained(Two())
    assert torch.equal(plain, both)
    assert "train/epoch/size" in result.metrics


def test_period_of_a_hook_can_be_written_in_the_config(shop: Path) -> None:
    write(
        shop / "shop" / "counting.py",
        """
        import epochal as ep

        class Counting(ep.Hook):
            def step_end(self, run: ep.Run) -> None:
                run.log({f"logged/{run.step}": 1})
        """,
    )
    hooks = "hooks=[{type: shop.counting.Counting, every: 5st}]"
    result = ep.run("config.yaml", overrides=[hooks], no_file=True, device="cpu")
    assert result.ok, result.message
    assert {name for name in result.metrics if name.startswith("logged/")} == {
        "logged/5",
        "logged/10",
    }


def test_check_prints_every_kind_of_mistake(epochal: Command) -> None:
    file = Path(__file__).parents[1] / "data" / "mistakes" / "mistakes.yaml"
    done = epochal("check", file)
    assert done.code == 78
    assert done.err.count("\n  set in ") == 11
    assert done.err.rstrip().endswith(": 11 mistakes")
    assert "Traceback" not in done.err
