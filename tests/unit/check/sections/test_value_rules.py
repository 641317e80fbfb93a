from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.unit.check.problems import problems_of

if TYPE_CHECKING:
    from pathlib import Path


def test_weights_that_do_not_exist_are_reported(check_dict, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "a.safetensors").touch()
    (tmp_path / "b.safetensors").touch()
    for good in ("~/a.safetensors", "b.safetensors", str(tmp_path / "b.safetensors"), None):
        assert check_dict(init_from=good).ok
    assert problems_of(check_dict(init_from="c.safetensors")) == [
        (
            "init_from",
            "no such file: 'c.safetensors'",
            f"relative paths start from the current folder, {tmp_path}",
        )
    ]
    for run in ("last", "last~2", "20261115-125010-57c7"):
        hint = f"for a run, write its folder: `epochal show {run}` prints it"
        assert problems_of(check_dict(init_from=run))[0][1:] == (f"no such file: {run!r}", hint)
    assert problems_of(check_dict(init_from="home"))[0][1:] == (
        "is a folder, but neither a run nor a checkpoint: 'home'",
        "write home/FILE for a file with weights in it",
    )


def test_weights_at_a_url_need_a_known_protocol_and_its_package(check_dict, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    assert check_dict(init_from="memory://box/a.safetensors").ok
    assert problems_of(check_dict(init_from={"path": "s5://me:word@box/a.pt"})) == [
        (
            "init_from.path",
            "'s5://box/a.pt': unknown protocol 's5'",
            "known are s3, gs, abfs, https, sftp and others",
        )
    ]
    assert problems_of(check_dict(init_from="gs://box/a.pt")) == [
        (
            "init_from",
            "'gs://box/a.pt': gs:// needs gcsfs, which is not installed",
            "pip install gcsfs",
        )
    ]


def test_weights_may_come_from_a_run_or_a_checkpoint(check_dict, tmp_path: Path) -> None:
    for name in ("run.json", "manifest.json"):
        (tmp_path / name).touch()
        assert check_dict(init_from=str(tmp_path)).ok
        (tmp_path / name).unlink()


def test_weights_with_options_are_checked(check_dict, tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").touch()
    path = str(tmp_path / "a.safetensors")
    report = check_dict(init_from={"path": path, "exclude": ["head.*"], "try_ema": "required"})
    assert report.ok
    assert report.expanded.mapping["init_from"].to_plain() == {
        "path": path,
        "exclude": ["head.*"],
        "strict": True,
        "try_ema": "required",
    }
    assert problems_of(check_dict(init_from={"path": "gone"}))[0][:2] == (
        "init_from.path",
        "no such file: 'gone'",
    )
    assert problems_of(check_dict(init_from={"exclude": []}))[0][0] == "init_from.path"
    assert (
        problems_of(check_dict(init_from={"path": path, "exlude": []}))[0][0] == "init_from.exlude"
    )
    assert problems_of(check_dict(init_from={"path": path, "try_ema": "yes"}))[0][0].endswith(
        "try_ema"
    )


def test_the_place_of_missing_weights_is_shown(write_files, tmp_path: Path) -> None:
    from epochal.check import check
    from epochal.config import load

    write_files({"a.yaml": "seed: 1\ninit_from: nowhere.safetensors\n"})
    report = check(load(tmp_path / "a.yaml"))
    (problem,) = [problem for problem in report.problems if problem.key == "init_from"]
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (2, 12)


def test_period_of_system_figures_must_be_a_time(check_dict) -> None:
    assert check_dict(log={"system_every": "30s"}).ok
    assert check_dict(log={"system_every": 0}).ok
    assert problems_of(check_dict(log={"system_every": "50st"})) == [
        ("log.system_every", "must be a time, got '50st'", "write for example 10s, or 0")
    ]


def test_max_time_must_be_a_time(check_dict) -> None:
    assert check_dict(train={"max_time": "3h"}).ok
    assert len(problems_of(check_dict(train={"max_time": "soon"}))) == 1
    for time in ("3ep", "10st", "1e3sa"):
        assert problems_of(check_dict(train={"max_time": time})) == [
            ("train.max_time", f"must be a time, got {time!r}", "write for example 24h or 90min")
        ]


def test_the_number_of_machines_is_checked(check_dict) -> None:
    hint = "write 2, or 1:3 on Ray"
    for nodes, what in {
        "3:1": "the largest number comes last, got '3:1'",
        "many": "must be a number of machines, or a range such as 1:3, got 'many'",
        "0:2": "must be at least 1, got '0:2'",
    }.items():
        found = problems_of(check_dict(launch={"on": "ray", "nodes": nodes}))
        assert found == [("launch.nodes", what, hint)]
    for nodes in (2, "2", "1:3"):
        assert check_dict(launch={"on": "ray", "nodes": nodes}).ok, nodes


def test_only_val_and_test_are_evaluated(check_dict) -> None:
    assert check_dict(train={"eval_every": {"dev": "1ep", "test": 0}}).ok
    for split in ("train", "predict", "infer"):
        assert problems_of(check_dict(train={"eval_every": {split: "1ep"}})) == [
            (f"train.eval_every.{split}", f"{split!r} is not evaluated", "write val or test")
        ]


def test_a_precision_and_a_dtype_must_agree(check_dict) -> None:
    for precision, dtype, hint in (
        ("fp64", "float32", "remove model.dtype, or write float64"),
        ("bf16", "float64", "remove engine.precision, or compute with model.dtype: float32"),
        ("fp64", "float64", ""),
        ("fp32", "float64", ""),
        ("bf16", "float32", ""),
        ("fp64", None, ""),
    ):
        model = {"type": "torch.nn.Identity"} | ({"dtype": dtype} if dtype else {})
        what = f"{precision!r} contradicts model.dtype {dtype!r}"
        expected = [("engine.precision", what, hint)] if hint else []
        assert problems_of(check_dict(model=model, engine={"precision": precision})) == expected


def test_names_of_checkpoints_are_checked(check_dict) -> None:
    assert check_dict(
        checkpoint={"name": "{tag}-{step}-{val/acc:.3f}", "every": ["1ep", "5min"]}
    ).ok
    assert problems_of(check_dict(checkpoint={"name": "{stp}"})) == [
        (
            "checkpoint.name",
            "'{stp}' has an unknown name {stp}",
            "write one of tag, step, epoch, samples, or a metric: {val/loss}",
        )
    ]
    assert problems_of(check_dict(checkpoint={"evry": "1ep"}))[0][0] == "checkpoint.evry"
    assert problems_of(check_dict(checkpoint={"keep_last": 0}))[0][0] == "checkpoint.keep_last"
    assert problems_of(check_dict(checkpoint={"every": "often"}))[0][0] == "checkpoint.every"


def test_clip_needs_one_positive_limit(check_dict) -> None:
    for clip, problems in (
        (1.0, []),
        ({"norm": 1}, []),
        ({"value": 0.5}, []),
        (
            -1.0,
            [
                (
                    "optim.clip",
                    "must be above 0, got -1.0",
                    "write a number that is above 0, or null",
                )
            ],
        ),
        (
            {"value": -1},
            [("optim.clip.value", "must be above 0, got -1", "write a number that is above 0")],
        ),
        ({"norn": 1}, [("optim.clip.norn", "cannot clip by 'norn'", "did you mean 'norm'?")]),
        (
            {"norm": 1, "value": 1},
            [("optim.clip", "takes one limit", "write {norm: 1.0} or {value: 0.5}")],
        ),
        ({}, [("optim.clip", "takes one limit", "write {norm: 1.0} or {value: 0.5}")]),
    ):
        assert problems_of(check_dict(optim={"type": "SGD", "lr": 0.1, "clip": clip})) == problems


def test_an_average_must_start_before_the_end(check_dict) -> None:
    for start, is_good in (("9ep", True), ("10ep", False), ("500st", True)):
        average = {"type": "swa", "start": start}
        report = check_dict(average=average, train={"for": "10ep"})
        expected = [("average.start", "nothing would be averaged: the training ends after 10ep")]
        assert [(one.key, one.what) for one in report.problems] == ([] if is_good else expected)
        assert check_dict(average={"type": "ema", "warmup": True, "every": "5st"}).ok, start


def test_impossible_folds_are_reported(check_dict) -> None:
    for train, problems in (
        ({"folds": 5}, []),
        ({"folds": 5, "fold": 5, "stratify": "label"}, []),
        ({"folds": 1}, [("train.folds", "must be at least 2, got 1")]),
        ({"folds": 0}, [("train.folds", "must be at least 2, got 0")]),
        ({"folds": 3, "fold": 4}, [("train.fold", "there is no fold 4 of 3")]),
        ({"fold": 1}, [("train.fold", "has no effect without train.folds")]),
        ({"stratify": 1}, [("train.stratify", "has no effect without train.folds")]),
    ):
        report = check_dict(train=train)
        assert [(problem.key, problem.what) for problem in report.problems] == problems


def test_a_compile_mode_of_another_backend_is_reported(check_dict) -> None:
    assert check_dict(engine={"compile_mode": "max-autotune"}).ok
    report = check_dict(engine={"compile_mode": "max-autotune", "compile_backend": "eager"})
    assert [one.key for one in report.problems] == ["engine.compile_mode"]


def test_a_stage_may_not_replace_the_data_of_a_fold(check_dict) -> None:
    data = {"train": {"type": "Tensors"}, "test": {"type": "Tensors"}}
    report = check_dict(train={"folds": 3}, stages=[{"for": "1ep"}, {"for": "1ep", "data": data}])
    found = [(problem.key, problem.what) for problem in report.problems]
    replaced = [key for key, what in found if what == "would replace the data of a fold"]
    assert replaced == ["stages.1.data.train"]


def test_a_secret_that_was_removed_from_a_record_is_reported(check_dict) -> None:
    report = check_dict(desc="a <redacted> note", data={"train": {"remote": "ssh://<redacted>@h"}})
    (problem,) = [one for one in report.problems if one.key == "data.train.remote"]
    assert problem.what == "was a secret, which records do not keep"
    assert "data.train.remote=VALUE, or write ${env:NAME}" in problem.hint
    assert not [one for one in report.problems if one.key == "desc"]


def test_unknown_splits_are_reported(check_dict) -> None:
    report = check_dict(
        hooks=[{"type": "Console", "on": ["train", "vall"]}],
        metrics=[{"type": "accuracy", "name": "a", "on": ["tset"]}],
        train={"eval_every": {"dev": "1ep", "zzz": "1ep"}},
    )
    found = {problem.key: (problem.what, problem.hint) for problem in report.problems}
    assert found == {
        "hooks.0.on.1": ("unknown split 'vall'", "did you mean 'val'?"),
        "metrics.0.on.0": ("unknown split 'tset'", "did you mean 'test'?"),
        "train.eval_every.zzz": ("unknown split 'zzz'", "known: train, val, test, predict"),
    }


def test_aliases_of_splits_are_accepted(check_dict) -> None:
    assert check_dict(hooks=[{"type": "Console", "on": ["dev", "validation", "infer"]}]).ok


def test_a_split_that_is_no_text_is_reported_once(check_dict) -> None:
    report = check_dict(hooks=[{"type": "Console", "on": [3]}])
    assert [problem.key for problem in report.problems] == ["hooks.0.on"]


def test_options_that_fsdp_cannot_have_are_reported(check_dict) -> None:
    wrong = {
        ("engine", "step", "graph"): "steps can only run eagerly",
        ("engine", "microbatch", 4): "every process must take the same number of forward passes",
        ("engine", "check_ranks", "10st"): "there are no copies of weights to compare",
        ("engine", "find_unused", True): "it is not needed",
        ("optim", "noise", 0.1): "noise would depend on the number of processes",
    }
    for (section, name, value), what in wrong.items():
        for strategy in ("fsdp", "auto"):
            config = {"engine": {"strategy": strategy}, "optim": {"type": "SGD", "lr": 0.1}}
            config[section][name] = value
            found = [one[:2] for one in problems_of(check_dict(**config))]
            expected = [(f"{section}.{name}", f"with strategy: fsdp {what}")]
            assert found == (expected if strategy == "fsdp" else []), name


def test_options_of_fsdp_without_fsdp_are_reported(check_dict) -> None:
    options = {"fsdp_wrap": ["a"], "fsdp_offload": True, "tensor_parallel": 2}
    for strategy, names in (("auto", options), ("ddp", ()), ("none", ())):
        found = problems_of(check_dict(engine={"strategy": strategy, **options}))
        assert [one[0] for one in found] == [f"engine.{name}" for name in names], strategy
        assert all(one[1] == "has no effect without strategy: fsdp" for one in found)


def test_tensor_parallel_needs_both_a_size_and_a_plan(check_dict) -> None:
    plan = {"up": "colwise", "down": "rowwise"}
    wrong = {
        "engine.tensor_plan": {"tensor_plan": plan},
        "engine.tensor_parallel": {"tensor_parallel": 2},
    }
    for key, options in wrong.items():
        report = check_dict(engine={"strategy": "fsdp", **options})
        assert [one[0] for one in problems_of(report)] == [key]
    assert check_dict(engine={"strategy": "fsdp", "tensor_plan": plan, "tensor_parallel": 2}).ok
    (problem,) = problems_of(check_dict(engine={"tensor_plan": {"up": "columns"}}))
    what = "expected a mapping (each 'colwise' or 'rowwise'), got {up: 'columns'}"
    assert problem[:2] == ("engine.tensor_plan", what)
