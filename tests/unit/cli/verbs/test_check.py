"""Tests of ``epochal check``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forked
from epochal.experiment.tools.repro import ReproResult
from small_project import Command, tree, write

if TYPE_CHECKING:
    import subprocess

    import pytest


def test_good_config_gives_zero_and_the_number_of_defaults(shop: Path, epochal: Command) -> None:
    before = tree(shop)
    done = epochal("check", "config.yaml")
    assert done.code == 0
    assert "config.yaml: no mistakes, " in done.out
    assert "defaults filled in; --defaults lists them" in done.out
    assert tree(shop) == before


def test_defaults_can_be_listed(shop: Path, epochal: Command) -> None:
    out = epochal("check", "config.yaml", "--defaults").out
    assert "  model.dropout = 0.1  (default of shop.parts.Net)" in out
    assert "--defaults" not in out


def test_all_mistakes_are_reported_at_once(shop: Path, epochal: Command) -> None:
    write(
        shop / "bad.yaml",
        """
        $BASE: config.yaml
        tagg: oops
        optim: {lr: fast}
        model: {type: shop.parts.Nett}
        task: {batch_siez: 3}
        train: {for: 3 weeks}
        """,
    )
    done = epochal("check", "bad.yaml")
    assert done.code == 78
    for text in (
        "tagg: ",
        "did you mean 'tag'?",
        "optim.lr: ",
        "bad.yaml:3:13",
        "'fast'",
        "Net",
        "batch_siez",
        "did you mean 'batch_size'?",
        "3 weeks",
        "bad.yaml: 5 mistakes",
    ):
        assert text in done.err
    assert done.out == ""
    assert not (shop / "runs").exists()


def test_the_space_of_a_sweep_is_checked_against_the_config(shop: Path, epochal: Command) -> None:
    write(
        shop / "swept.yaml",
        """
        $BASE: config.yaml
        sweep:
          space:
            optim.lr: {min: -1.0, max: 1.0}
            model.dropout: [0.1, much]
        """,
    )
    done = epochal("check", "swept.yaml")
    assert done.code == 78
    assert "sweep.space.optim.lr: must be at least 0, got -1.0\n  set in swept.yaml:4:5" in done.err
    assert "sweep.space.model.dropout: " in done.err
    assert "swept.yaml:5:5" in done.err
    assert "swept.yaml: 2 mistakes" in done.err
    assert epochal("check", "swept.yaml", "sweep.space={seed: [1, 2]}").code == 78
    write(shop / "swept.yaml", "$BASE: config.yaml\nsweep: {space: {seed: [1, 2]}}\n")
    assert epochal("check", "swept.yaml").code == 0


def test_the_space_of_a_sweep_is_checked_for_the_variant_that_is_swept(
    shop: Path, epochal: Command
) -> None:
    text = """
        $BASE: config.yaml
        schedule: {type: cosine}
        variants: {flat: {schedule.type: constant}}
        sweep: {space: {schedule.min_factor: [0.1, 0.5]}}
    """
    write(shop / "swept.yaml", text)
    assert epochal("check", "swept.yaml").code == 0
    done = epochal("check", "swept.yaml", "--variant", "flat")
    assert "sweep.space.schedule.min_factor: unknown argument 'min_factor' of" in done.err


def test_variants_are_checked_too(shop: Path, epochal: Command) -> None:
    write(shop / "bad.yaml", "$BASE: config.yaml\nvariants: {odd: {optim.lr: fast}}\n")
    done = epochal("check", "bad.yaml")
    assert done.code == 78
    assert "bad.yaml: 1 mistake\n" in done.err
    assert epochal("check", "bad.yaml", "--variant", "hot").code == 0


def test_unknown_variant_suggests_the_closest_one(shop: Path, epochal: Command) -> None:
    done = epochal("check", "config.yaml", "--variant", "hto")
    assert done.code == 78
    assert "did you mean 'hot'?" in done.err


def test_overrides_are_checked_too(shop: Path, epochal: Command) -> None:
    done = epochal("check", "config.yaml", "optim.lrr=1")
    assert done.code == 78
    assert "optim.lrr=1" in done.err
    assert "did you mean 'lr'?" in done.err


def test_json_lists_every_mistake_with_its_place(shop: Path, epochal: Command) -> None:
    write(shop / "bad.yaml", "$BASE: config.yaml\ntagg: oops\n")
    done = epochal("check", "bad.yaml", "config.yaml", "--json")
    assert done.code == 78
    bad, good = json.loads(done.out)
    (problem,) = bad["problems"]
    assert (problem["key"], problem["line"], problem["column"]) == ("tagg", 2, 1)
    assert problem["source"] == "bad.yaml"
    assert good["problems"] == []
    assert good["defaults"] > 10


def test_file_that_cannot_be_read_does_not_hide_the_others(shop: Path, epochal: Command) -> None:
    done = epochal("check", "missing.yaml", "config.yaml")
    assert done.code == 66
    assert "missing.yaml: no such file" in done.err
    assert "config.yaml: no mistakes" in done.out
    assert len(json.loads(epochal("check", "missing.yaml", "--json").out)[0]["problems"]) == 1


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)


def test_hostile_files_get_a_message_and_leave_nothing(shop: Path, epochal: Command) -> None:
    for content, message in [
        (b"", "empty"),
        (b"# only a comment\n", "empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "UTF-8"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"tag: " + b"x" * 1_100_000, "1"),
        (BOMB.encode(), "10,000"),
        (b"- a\n- b\n", "mapping"),
        (b"just words\n", "mapping"),
        (b"tag: [1, 2\n", "odd.yaml:"),
        (b"tag: a\ntag: b\n", "odd.yaml:2"),
        (b"model: {type: !!python/object:os.system x}\n", "odd.yaml:1"),
    ]:
        (shop / "odd.yaml").write_bytes(content)
        before = tree(shop)
        for verb in ("check", "run"):
            done = epochal(verb, "odd.yaml")
            assert done.code == 78, message
            assert "odd.yaml" in done.err, message
            assert message in done.err, message
            assert "Traceback" not in done.err, message
            assert len(done.err) < 3000, message
        assert tree(shop) == before, message


def test_folder_in_place_of_a_file_is_an_error(shop: Path, epochal: Command) -> None:
    done = epochal("check", "shop")
    assert done.code == 66
    assert "shop: is a folder" in done.err


def test_python_config_needs_to_be_allowed(shop: Path, epochal: Command) -> None:
    write(shop / "conf.py", "config = {'tag': 'x'}\nopen('ran', 'w').close()\n")
    done = epochal("check", "conf.py")
    assert done.code == 78
    assert "--allow-python" in done.err
    assert not (shop / "ran").exists()
    epochal("check", "conf.py", "--allow-python")
    assert (shop / "ran").exists()


def test_user_dir_is_where_code_is_found(
    shop: Path, epochal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write(Path("far.yaml"), f"$BASE: {shop / 'config.yaml'}\n")
    assert epochal("check", "far.yaml").code == 78
    assert epochal("check", "far.yaml", "--user-dir", shop).code == 0


def test_repro_trains_twice_and_compares(
    shop: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_forked(words: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        return forked.run(*words[1:], input=more["input"])

    monkeypatch.setattr("epochal.experiment.tools.repro.subprocess.run", run_forked)
    before = tree(shop)
    done = epochal("check", "config.yaml", "--repro", "--steps", "2")
    assert done.code == 0
    assert (
        "config.yaml: 2 steps trained twice; losses, weights and optimizer are bitwise equal"
        in done.out
    )
    assert tree(shop) == before


def test_repro_reports_the_first_difference(
    shop: Path, epochal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    differing = ReproResult(3, 2, ("losses: loss",), "look for your own generators", exit_code=1)
    monkeypatch.setattr("epochal.experiment.tools.repro.check_repro", lambda *_, **__: differing)
    done = epochal("check", "config.yaml", "--repro")
    assert done.code == 1
    assert (
        "two trainings differ after step 2\n  losses: loss\n  look for your own generators"
        in done.err
    )
    (found,) = json.loads(epochal("check", "config.yaml", "--repro", "--json").out)
    assert found["repro"]["first_difference"] == 2
    failed = ReproResult(0, exit_code=70)
    monkeypatch.setattr("epochal.experiment.tools.repro.check_repro", lambda *_, **__: failed)
    done = epochal("check", "config.yaml", "--repro")
    assert (done.code, "the training failed" in done.err) == (70, True)


def test_config_with_mistakes_is_not_trained(shop: Path, epochal: Command) -> None:
    done = epochal("check", "config.yaml", "optim.lrr=1", "--repro")
    assert done.code == 78
    assert "twice" not in done.out


def test_missing_type_has_the_known_types_as_a_hint(shop: Path, epochal: Command) -> None:
    done = epochal("check", "config.yaml", "average.decay=0.9")
    assert "average: the average has no type" in done.err + done.out
    assert "  add type: ema or swa\n" in done.err + done.out


def test_build_reports_problems_of_the_parts(shop: Path, epochal: Command) -> None:
    write(
        shop / "bad.yaml",
        """
        $BASE: config.yaml
        optim: {freeze: [gone], groups: [{match: lost, lr: 1}]}
        """,
    )
    assert epochal("check", "bad.yaml").code == 0
    done = epochal("check", "bad.yaml", "--build", "--device", "cpu")
    assert done.code == 78
    assert "optim.freeze: 'gone' matches no parameter\n  set in bad.yaml:2:18" in done.err
    assert "optim.groups.0: 'lost' matches no parameter" in done.err
    assert "bad.yaml: 2 mistakes" in done.err


def test_build_shows_a_panel_for_an_error_in_the_code_of_the_parts(
    shop: Path, epochal: Command
) -> None:
    words = ("check", "config.yaml", "model.dropout=-1", "--build", "--device", "cpu")
    done = epochal(*words)
    assert done.code == 1
    assert "build failed: ValueError" in done.err
    assert "while building model" in done.err
    assert "Traceback" not in done.err
    assert done.err.endswith("config.yaml: cannot be built\n")
    done = epochal(*words, "--json")
    (file,) = json.loads(done.out)
    assert done.code == 1
    assert file["problems"][0]["what"].startswith("cannot be built: ValueError: ")


def test_build_reports_more_folds_than_samples(shop: Path, epochal: Command) -> None:
    done = epochal("check", "config.yaml", "train.folds=100000", "--build", "--device", "cpu")
    assert done.code == 78
    assert "train.folds: 100000 folds of" in done.err
    assert "set on the command line" in done.err


def test_build_reports_a_warmup_that_outlasts_the_epochs(shop: Path, epochal: Command) -> None:
    write(
        shop / "warm.yaml",
        """
        $BASE: config.yaml
        schedule: {type: cosine, warmup: 12st}
        """,
    )
    assert epochal("check", "warm.yaml").code == 0, "the number of steps is not known"
    words = ("check", "warm.yaml", "--build", "--device", "cpu")
    done = epochal(*words)
    assert done.code == 78
    told = [line for line in done.err.splitlines() if not line.startswith("    ")]
    assert told == [
        "schedule.warmup: the warm-up takes 12 steps, and the training only 12",
        "  set in warm.yaml:2:34",
        "  make the warm-up shorter, or the training longer",
        "",
        "warm.yaml: 1 mistake",
    ]
    assert epochal(*words, "schedule.warmup=11st").code == 0
    stages = "stages=[{for: 1ep, schedule: {type: cosine, warmup: 6st}}, {for: 1ep}]"
    done = epochal("check", "config.yaml", stages, "--variant", "base", *words[2:])
    assert "stages.0.schedule.warmup: the warm-up takes 6 steps" in done.err
    assert epochal(*words, "train.for=1ep").code == 0, "a trial run may be shorter"


def test_build_of_a_valid_config_writes_nothing(shop: Path, epochal: Command) -> None:
    before = tree(shop)
    done = epochal("check", "config.yaml", "--build", "--device", "cpu")
    assert done.code == 0, done.err
    assert "no mistakes" in done.out
    assert tree(shop) == before
