"""Tests of the errors of verbs that build the parts of a config."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command

VERBS = {"plan": (), "profile": (), "find-lr": (), "find-batch": ("--limit", "4")}


def test_mistakes_in_the_config_are_listed(shop: Path, epochal: Command) -> None:
    for verb, options in VERBS.items():
        done = epochal(verb, "config.yaml", "optim.lrr=1", *options)
        assert (done.code, "optim.lrr" in done.err) == (78, True), verb


def test_second_config_is_refused(shop: Path, epochal: Command) -> None:
    for verb in ("profile", "find-lr", "find-batch"):
        done = epochal(verb, "config.yaml", "base.yaml", *VERBS[verb])
        assert done.code == 78, verb
        assert f"{verb} takes one config\n  write `epochal {verb} config.yaml`" in done.err, verb


def test_error_of_the_users_code_shows_its_place(shop: Path, epochal: Command) -> None:
    for verb, options in VERBS.items():
        words = ("task.type=shop.parts.Stumbling", "--device", "cpu", *options)
        done = epochal(verb, "config.yaml", *words)
        assert done.code == 1, verb
        for text in (
            "the shelf is empty",
            "while building task (shop.parts.Stumbling)",
            "shop/parts.py:",
        ):
            assert text in done.err, verb
        assert "Traceback" not in done.err, verb
