from __future__ import annotations


def test_unknown_splits_are_reported_wherever_they_are_listed(check_dict) -> None:
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


def test_aliases_of_splits_are_splits(check_dict) -> None:
    assert check_dict(hooks=[{"type": "Console", "on": ["dev", "validation", "infer"]}]).ok


def test_what_is_no_text_is_left_to_the_check_of_types(check_dict) -> None:
    report = check_dict(hooks=[{"type": "Console", "on": [3]}])
    assert [problem.key for problem in report.problems] == ["hooks.0.on"]
