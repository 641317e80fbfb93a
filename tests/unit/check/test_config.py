from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.unit.check.problems import problems_of

from epochal.check import Opaque, build_registry, check
from epochal.check.config import sort_problems
from epochal.config import dump, load, load_variants
from epochal.errors import Place, Problem

ROOT = Path(__file__).parents[3]
MISTAKES = ROOT / "tests" / "data" / "mistakes" / "mistakes.yaml"

EXPECTED = {
    # key: (line, column, underlined, what the hint must hold)
    "desc": (5, 18, "${model.widht}", "did you mean 'model.width'?"),
    "task.batch_sise": (9, 3, "batch_sise", "did you mean 'batch_size'?"),
    "model.classes": (12, 9, "shapes.model.Mlp", "add classes: <a whole number>"),
    "model.width": (13, 10, "wide", ""),
    "optim.weight_dacay": (18, 3, "weight_dacay", "did you mean 'weight_decay'?"),
    "metrics.0.type": (21, 11, "acuracy", "did you mean 'accuracy'?"),
    "monitor": (24, 10, "+val/accurate", "did you mean '+val/acc'?"),
    "train.for": (27, 8, "10epochs", "10ep (epochs)"),
    "engin": (29, 1, "engin", "did you mean 'engine'?"),
    "hooks.0.patiense": (34, 5, "patiense", "did you mean 'patience'?"),
}
OWNERS = {
    "task.batch_sise": "shapes.task.Shapes",
    "model.classes": "shapes.model.Mlp",
    "model.width": "shapes.model.Mlp",
    "optim.weight_dacay": "torch.optim.adamw.AdamW",
    "hooks.0.patiense": "epochal.hooks.early_stopping.EarlyStopping",
}


def test_every_mistake_is_reported_once_with_its_place_and_a_hint() -> None:
    report = check(load(MISTAKES))
    assert len(report.problems) == len(EXPECTED) + 1
    found = {problem.key: problem for problem in report.problems}
    for key, (line, column, underlined, hint) in EXPECTED.items():
        problem = found[key]
        place = problem.place
        assert place is not None
        assert (Path(place.name).name, place.line, place.column) == ("mistakes.yaml", line, column)
        assert place.text[place.column - 1 :][: place.width] == underlined
        assert hint in problem.hint
        assert OWNERS.get(key, "") in problem.what
        lines = str(problem).splitlines()
        assert lines[0].startswith(f"{key}: ")
        assert lines[1] == f"  set in {place}"
        assert lines[3].strip() == "^" * len(underlined)
    (broken,) = [problem for key, problem in found.items() if key not in EXPECTED]
    assert broken.place is not None
    assert (Path(broken.place.name).name, broken.place.line) == ("schedule.yaml", 2)
    assert "[" in broken.what


def test_checking_imports_neither_torch_nor_the_users_code() -> None:
    script = (
        "import sys, json; from epochal.config import load; from epochal.check import check\n"
        f"report = check(load({str(MISTAKES)!r}))\n"
        "heavy = [n for n in sys.modules if n.split('.')[0] in ('torch', 'shapes', 'numpy')]\n"
        "print(json.dumps([len(report.problems), heavy]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [len(EXPECTED) + 1, []]


def test_a_good_config_has_no_problems_and_all_its_defaults(check_dict) -> None:
    report = check_dict(monitor="+val/acc")
    assert report.ok, report.problems
    plain = report.expanded.to_plain()
    assert plain["model"] == {
        "type": "user.model.Mlp",
        "classes": 3,
        "dtype": "float32",
        "width": 64,
        "act": None,
    }
    assert plain["optim"]["betas"] == [0.9, 0.999]
    assert plain["optim"]["accumulate"] == 1
    assert plain["train"]["for"] == "10ep"
    assert plain["runner"]["type"] == "train"
    assert (plain["seed"], plain["project"], plain["tag"]) == (0, "p", "run")
    owners = {item.key: item.owner for item in report.defaults}
    assert owners["optim.eps"] == "torch.optim.adamw.AdamW"
    assert owners["optim.clip"] == "section 'optim'"


def test_the_expanded_config_reproduces_itself(check_dict, user_registry, tmp_path) -> None:
    for format in ("yaml", "toml", "json"):
        first = check_dict(
            schedule="cosine", hooks=["Console"], monitor="+val/acc", extra={"a": [1]}
        )
        file = tmp_path / f"expanded.{format}"
        file.write_text(dump(first.expanded, format), encoding="utf-8")
        second = check(load(file), user_registry)
        assert problems_of(second) == [], format
        assert second.expanded.to_plain() == first.expanded.to_plain(), format


def test_defaults_that_must_be_computed_are_listed_and_left_out(write_files, check_dict) -> None:
    write_files({"user/own.py": "class M:\n    def __init__(self, act=make()): ..."})
    report = check_dict(model={"type": "user.own.M"})
    assert report.ok
    assert "act" not in report.expanded.mapping["model"].mapping
    assert {item.key: item.value for item in report.defaults}["model.act"] == Opaque("make()")


def test_missing_sections_are_reported_unless_misspelt(check_dict) -> None:
    for sections, missing in (
        ({"optim": None}, ["optim"]),
        ({"model": None}, ["model"]),
        ({"task": None}, ["task"]),
        ({"task": None, "model": None, "optim": None}, ["model", "task", "optim"]),
        ({"optim": None, "optm": {}}, []),
        ({"task": None, "dta": {}}, []),
    ):
        report = check_dict(**sections)
        found = [key for key, what, _ in problems_of(report) if what.startswith("missing")]
        assert sorted(found) == sorted(missing)


def test_other_runners_need_no_optimizer(check_dict) -> None:
    for runner in ("test", "predict"):
        report = check_dict(optim=None, runner=runner)
        assert report.ok, runner
        assert report.expanded.find("runner.type").value == runner
        report = check_dict(model=None, optim=None, runner=runner)
        assert [key for key, _, _ in problems_of(report)] == ["model"], runner


def test_a_custom_runner_needs_what_its_base_needs(check_dict, write_files) -> None:
    text = """
        from epochal.engine import Runner, Train
        class Longer(Train): ...
        class Own(Runner): ...
        class Rivals(Train):
            needs_optimizer = False
    """
    write_files({"user/runners.py": text})
    assert check_dict(optim=None, runner="user.runners.Rivals").ok
    extended = check_dict(optim=None, runner="user.runners.Longer")
    assert [key for key, _, _ in problems_of(extended)] == ["optim"]
    assert extended.problems[0].what == "missing; the runner 'user.runners.Longer' needs it"
    assert check_dict(task=None, model=None, optim=None, runner="user.runners.Own").ok


def test_error_for_a_lightning_task_without_optim_names_its_experiment(check_dict) -> None:
    (problem,) = check_dict(task="lightning", optim=None).problems
    assert problem.key == "optim"
    assert "or experiment: epochal.adapters.lightning.LightningExperiment" in problem.hint


def test_model_and_data_alone_use_the_task_module(check_dict) -> None:
    spec = {"type": "torch.utils.data.Subset", "dataset": 1, "indices": [0]}
    report = check_dict(task=None, data={"train": spec, "val": spec}, monitor="-val/loss")
    assert report.ok
    assert report.expanded.mapping["task"].to_plain() == {"type": "module"}


def test_training_a_task_without_a_loss_is_reported(check_dict, write_files) -> None:
    write_files({"user/bare.py": "import epochal as ep\nclass Bare(ep.Task): ..."})
    report = check_dict(task={"type": "user.bare.Bare"})
    assert problems_of(report) == [
        (
            "task.type",
            "user.bare.Bare has no 'batch_forward', which training needs",
            "write def batch_forward(self, model, batch) in class Bare",
        ),
        (
            "task.type",
            "user.bare.Bare has no 'batch_loss', which training needs",
            "write def batch_loss(self, out, batch) in class Bare, or a section loss",
        ),
    ]
    testing = check_dict(task={"type": "user.bare.Bare"}, runner="test")
    assert [what for _, what, _ in problems_of(testing)] == [
        "user.bare.Bare has no 'batch_forward', which testing needs"
    ]


def test_a_method_that_cannot_be_called_is_reported_if_the_engine_calls_it(
    check_dict, write_files
) -> None:
    text = """
        import epochal as ep
        class Few(ep.Task):
            def batch_forward(self, batch): return {"out": batch}
            def batch_loss(self, model, out, batch): return {"loss": (out["out"].mean(), 1)}
        class Own(ep.Runner): ...
        class Step(ep.Updater): ...
    """
    write_files({"user/few.py": text})
    few = {"type": "user.few.Few"}
    wrong = "user.few.Few.batch_forward takes (batch), but is called with (model, batch)"
    loss = "user.few.Few.batch_loss takes the loss of the config as its third parameter, 'batch', "
    loss += "but the config has none"
    assert [what for _, what, _ in problems_of(check_dict(task=few))] == [wrong, loss]
    for sections in ({"loss": {"type": "mse"}}, {"stages": [{"loss": {"type": "mse"}}]}):
        found = [what for _, what, _ in problems_of(check_dict(task=few, **sections))]
        assert wrong in found, sections
        assert loss not in found, sections
    for sections in ({"runner": "user.few.Own"}, {"updater": {"type": "user.few.Step"}}):
        assert check_dict(task=few, **sections).ok, sections


def test_methods_assigned_at_run_time_are_not_reported_as_missing(check_dict, write_files) -> None:
    text = """
        import epochal as ep
        class Made(ep.Task):
            batch_forward = make_forward()
            def __init__(self): self.batch_loss = make_loss()
    """
    write_files({"user/made.py": text})
    assert check_dict(task={"type": "user.made.Made"}).ok


def test_misspelt_methods_of_tasks_and_hooks_are_reported(check_task, write_files) -> None:
    hook = "import epochal as ep\nclass Own(ep.Hook):\n    def epoch_ends(self, run): ..."
    write_files({"user/hooks.py": hook})
    report = check_task("def batch_metrics(self): ...", hooks=[{"type": "user.hooks.Own"}])
    assert sorted(key for key, _, _ in problems_of(report)) == ["hooks.0", "task"]


def test_unknown_sections_suggest_one_or_extra(check_dict) -> None:
    report = check_dict(modle={}, zzz=1, run_cap=5, **{"optim.groups.a.lr": 0.1})
    assert problems_of(report) == [
        ("modle", "unknown section 'modle'", "did you mean 'model'?"),
        ("zzz", "unknown section 'zzz'", "your own values go under 'extra'"),
        (
            "run_cap",
            "unknown section 'run_cap'",
            "a key of a W&B sweep file: write it under 'sweep' of an experiment's config",
        ),
        (
            "optim.groups.a.lr",
            "unknown section 'optim.groups.a.lr'",
            "write optim: {groups: {a: {lr: 0.1}}}",
        ),
    ]


def test_a_section_that_is_null_is_absent(check_dict) -> None:
    report = check_dict(**{"schedule": "$null"})
    assert report.ok
    assert "schedule" not in report.expanded.mapping


def test_imports_are_checked_where_they_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        "imports: [os]\nmodel: {type: torch.nn.Linear, in_features: 1, out_features: 1}\n"
    )
    config = load(file)
    report = check(config, build_registry(config), runner="test")
    found = {problem.key: problem for problem in report.problems}
    place = found["imports.0"].place
    assert (place.line, place.column) == (1, 11)


def test_components_registered_by_imports_are_known_by_name(write_files, tmp_path: Path) -> None:
    text = (
        "import epochal as ep\n@ep.register('model')\nclass Net:\n  def __init__(self, a: int): ..."
    )
    write_files({"parts.py": text, "a.yaml": "imports: [parts]\nmodel: {type: Net, b: 1}\n"})
    report = check(load(tmp_path / "a.yaml"), runner="test")
    found = {key: what for key, what, _ in problems_of(report)}
    assert found["model.b"] == "unknown argument 'b' of parts.Net"


def test_overrides_of_unknown_keys_point_at_the_command_line(write_files, tmp_path: Path) -> None:
    write_files({"a.yaml": "optim: {type: AdamW}\n"})
    report = check(load(tmp_path / "a.yaml", overrides=["optim.lrr=1"]))
    (problem,) = [item for item in report.problems if item.key == "optim.lrr"]
    assert problem.place is not None
    assert problem.place.name == "command line"
    assert problem.hint == "did you mean 'lr'?"


def test_the_shipped_examples_have_no_mistakes() -> None:
    for file in sorted((ROOT / "examples").glob("*/*.yaml")):
        config = load(file)
        for variant in (None, *config.variants):
            assert problems_of(check(load(file, variant=variant))) == []


def test_hostile_targets_are_refused_under_every_key_and_depth(check_dict) -> None:
    for key in ("type", "NAME", "_target_", "class_path"):
        for target in ("os.system", "builtins.eval", "torch.hub.load", "posix.system"):
            hostile = {key: target, "command": "true"}
            for sections in (
                {"model": hostile},
                {"model": {"type": "user.model.Mlp", "classes": 1, "act": hostile}},
                {"hooks": [hostile]},
                {
                    "data": {
                        "train": {
                            "type": "torch.utils.data.Subset",
                            "dataset": [hostile],
                            "indices": [],
                        }
                    }
                },
            ):
                (problem,) = check_dict(**sections).problems
                assert target in problem.what


DATA = {"train": {"type": "torch.utils.data.TensorDataset"}}


def test_numbers_out_of_bounds_are_reported(check_dict) -> None:
    for sections, key, what in (
        ({"optim": {"type": "SGD", "accumulate": 0}}, "optim.accumulate", "at least 1, got 0"),
        ({"optim": {"type": "SGD", "clip": 0}}, "optim.clip", "above 0, got 0"),
        ({"optim": {"type": "SGD", "clip": -1.5}}, "optim.clip", "above 0, got -1.5"),
        ({"train": {"sanity_batches": -1}}, "train.sanity_batches", "at least 0, got -1"),
        ({"train": {"limit_batches": 0}}, "train.limit_batches", "at least 1, got 0"),
        ({"engine": {"num_threads": 0}}, "engine.num_threads", "at least 1, got 0"),
        (
            {"data": {"train": DATA["train"] | {"batch_size": 0}}},
            "data.train.batch_size",
            "at least 1, got 0",
        ),
        (
            {"data": {"train": DATA["train"] | {"workers": -1}}},
            "data.train.workers",
            "at least 0, got -1",
        ),
    ):
        (problem,) = check_dict(**sections).problems
        assert problem.key == key
        assert problem.what == f"must be {what}"
        assert problem.hint.startswith("write a number that is"), sections


def test_wrong_durations_are_reported(check_dict) -> None:
    for text in ("0ep", "-1ep", "0.5st", "0h"):
        (problem,) = check_dict(train={"for": text}).problems
        assert problem.key == "train.for", text


def test_a_wrong_log_level_is_reported(check_dict) -> None:
    (problem,) = check_dict(log={"level": "warn"}).problems
    assert (problem.key, problem.hint) == ("log.level", "did you mean 'warning'?")


def test_users_may_bound_their_own_arguments(check_dict, write_files) -> None:
    model = """
        from typing import Annotated
        from epochal.config import AtLeast, Below
        Rate = Annotated[float, AtLeast(0), Below(1)]
        class Mlp:
            def __init__(self, width: Annotated[int, AtLeast(1)], drop: Rate | None = None): ...
    """
    write_files({"user/model.py": model})
    spec = {"type": "user.model.Mlp", "width": 0, "drop": 1.0}
    first, second = check_dict(model=spec).problems
    assert first.what == "must be at least 1, got 0 (argument 'width' of user.model.Mlp)"
    assert second.what.startswith("must be below 1, got 1.0")
    assert check_dict(model=spec | {"width": 1, "drop": None}).ok


def test_modules_beside_the_current_folder_are_found(write_files, monkeypatch) -> None:
    for text in (
        "task: user.task.Shapes",
        "hooks: [{type: user.hook.Hook}]",
        "imports: [user.names]",
        "model: {type: torch.nn.Sequential, inner: {deep: [{type: user.a.B}]}}",
    ):
        folder = write_files({"user/names.py": "", "configs/x.yaml": text})
        monkeypatch.chdir(folder)
        assert build_registry(load(folder / "configs/x.yaml")).project.dir == folder, text


def test_a_config_that_names_no_module_belongs_to_its_own_folder(write_files, monkeypatch) -> None:
    folder = write_files({"user.py": "", "configs/x.yaml": "tag: user.x\nextra: {x: user.y}"})
    monkeypatch.chdir(folder)
    assert build_registry(load("configs/x.yaml")).project.dir == folder / "configs"


def test_a_registry_that_fits_is_reused(write_files, tmp_path: Path) -> None:
    write_files({"parts.py": "", "a.yaml": "seed: 1\nvariants: {b: {imports: [parts]}}\n"})
    file = tmp_path / "a.yaml"
    first = build_registry(load(file))
    assert build_registry(load(file, overrides=["seed=2"]), like=first) is first
    assert build_registry(load(file, variant="b"), like=first) is not first
    assert build_registry(load(file), like=first, user_dir=tmp_path.parent) is not first


def test_checking_all_variants_finds_what_checking_each_finds(
    user_registry, write_files, tmp_path: Path
) -> None:
    text = """
        task: {type: user.task.Shapes}
        model: {type: user.model.Mlp, classes: 3}
        optim: {type: SGD}
        variants:
          a: {model.widht: 3}
          b: {task.type: user.task.Other, optim: {type: AdamW, momentum: 1}}
          c: {monitor: +val/accu}
    """
    write_files({"a.yaml": text})
    registry = None
    for config in load_variants(tmp_path / "a.yaml"):
        registry = build_registry(config, like=registry)
        assert registry.project.dir == user_registry.project.dir
        alone = load(tmp_path / "a.yaml", variant=config.variant)
        assert check(config, registry).problems == check(alone).problems
        assert bool(check(config, registry).problems) == (config.variant is not None)


def test_problems_are_sorted_by_place_without_duplicates() -> None:
    late = Problem("c", "x", Place("a.yaml", 9, 1))
    early = Problem("a", "x", Place("a.yaml", 2, 5))
    other = Problem("b", "x", Place("b.yaml", 1, 1))
    nowhere = Problem("d", "x")
    assert sort_problems([other, late, early, late, nowhere]) == (nowhere, early, late, other)


def test_the_text_of_a_report_is_its_problems_or_the_number_of_defaults(check_dict) -> None:
    good = check_dict()
    assert repr(good) == str(good)
    assert str(good) == f"no mistakes, {len(good.defaults)} defaults"
    bad = check_dict(seed="x", modle={})
    assert str(bad) == "\n\n".join(str(problem) for problem in bad.problems)
    assert "unknown section 'modle'" in str(bad)
    assert str(replace(good, defaults=good.defaults[:1])) == "no mistakes, 1 default"
