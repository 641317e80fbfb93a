"""Tests of checks before a series starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from epochal.experiment.config.check_file import check_file
from small_project import write

CONFIG = Path("config.yaml")


@pytest.fixture
def odd(shop: Path) -> Path:
    """A file that is fine, with one variant that is not."""
    return write(Path("odd.yaml"), "$BASE: config.yaml\nvariants: {odd: {optim.lr: fast}}\n")


def test_good_file_has_no_problems_and_its_defaults(shop: Path) -> None:
    checked = check_file(CONFIG, [], {})
    assert checked.problems == ()
    assert checked.defaults


def test_only_the_chosen_variants_are_checked(odd: Path) -> None:
    assert not check_file(odd, [], {}).problems
    assert not check_file(odd, [], {"variant": "hot"}).problems
    assert len(check_file(odd, [], {"variant": "odd"}).problems) == 1
    assert len(check_file(odd, [], {"variant": "all"}).problems) == 1


def test_a_mistake_is_reported_once_though_variants_have_other_hints(shop: Path) -> None:
    text = "$BASE: config.yaml\nvariants: {other: {optim: {type: Adam, momentum: $delete}}}\n"
    file = write(Path("other.yaml"), f"{text}momentum: 0.5\n")
    (problem,) = check_file(file, [], {"variant": "all"}, is_plain_too=True).problems
    assert problem.hint == "did you mean 'optim.momentum'?"


def test_the_file_itself_is_checked_besides_its_variants_on_request(odd: Path) -> None:
    write(odd, "$BASE: config.yaml\noptim: {lr: fast}\nvariants: $delete\n")
    write(Path("mended.yaml"), "$BASE: odd.yaml\nvariants: {good: {optim.lr: 1.0}}\n")
    mended = Path("mended.yaml")
    assert not check_file(mended, [], {"variant": "all"}).problems
    assert check_file(mended, [], {"variant": "all"}, is_plain_too=True).problems
    assert check_file(odd, [], {"variant": "all"}).problems


def test_problems_do_not_quote_the_secrets_of_the_config(shop: Path) -> None:
    wrong = write(
        Path("wrong.yaml"),
        "$BASE: config.yaml\ntask: {password: hunter22}\noptim: {lr: hunter22}\n",
    )
    texts = "\n".join(map(str, check_file(wrong, [], {}).problems))
    assert "optim.lr: expected a number, got '<redacted>'" in texts
    assert "task: {password: <redacted>}" in texts
    assert "hunter22" not in texts


def test_a_missing_file_has_its_own_exit_code(shop: Path) -> None:
    checked = check_file(Path("gone.yaml"), [], {"variant": "all"})
    assert (len(checked.problems), checked.exit_code) == (1, 66)


def test_choices_are_checked_with_the_file(shop: Path) -> None:
    assert check_file(CONFIG, [], {"epochs": 0}).problems
    (problem,) = check_file(CONFIG, ["train.for=2ep"], {"epochs": 1}).problems
    assert "set twice" in problem.what


def test_code_may_lie_elsewhere(shop: Path, tmp_path: Path) -> None:
    far = write(tmp_path / "far.yaml", f"$BASE: {shop / 'config.yaml'}\n")
    assert not check_file(far, [], {"user_dir": str(shop)}).problems
