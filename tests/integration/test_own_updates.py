from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import override

import epochal as ep
from epochal.testing import TinyModel, TinyTask

if TYPE_CHECKING:
    from pathlib import Path

    from epochal.engine.feed.feed import Microbatches
    from small_project import Command

STILL = '''

class Still(ep.Updater):
    """Moves nothing.

    Args:
        word: What it says of itself.
    """

    def __init__(self, word: str = "still") -> None:
        self.word = word

    def apply(self, run, total=None):
        run.store.force_set("word", self.word)
'''


class Counting(ep.Updater):
    """Counts its steps."""

    count = 0

    @override
    def update(self, run: ep.Run, microbatches: Microbatches) -> None:
        self.count += 1
        super().update(run, microbatches)


def experiment(**sections: Any) -> ep.Experiment:
    parts = {"task": TinyTask(), "model": TinyModel(), "optim": {"type": "SGD", "lr": 0.1}}
    parts |= {"train": {"for": "3st"}, "log": {"console_every": 0, "level": "error"}}
    choices = {"device": "cpu", "no_file": True, "raise_errors": True}
    return ep.Experiment(choices=choices, **parts | sections)


def test_updater_is_given_as_an_object() -> None:
    updater = Counting()
    assert experiment(updater=updater).run().steps == 3
    assert updater.count == 3


def test_updater_is_not_built_without_training() -> None:
    updater = Counting()
    assert experiment(updater=updater).run("test").ok
    assert updater.count == 0


def test_updater_is_named_in_a_config(shop: Path, epochal: Command) -> None:
    with (shop / "shop" / "parts.py").open("a") as file:
        file.write(STILL)
    named = "updater={type: shop.parts.Still, word: rest}"
    assert epochal("check", "config.yaml", named).code == 0
    wrong = epochal("check", "config.yaml", "updater={type: shop.parts.Still, wrd: rest}")
    assert "updater.wrd: unknown argument 'wrd' of shop.parts.Still" in wrong.err
    assert epochal("run", "config.yaml", named, "--device", "cpu").code == 0


def test_custom_updater_decides_the_final_weights() -> None:
    class Still(ep.Updater):
        @override
        def apply(self, run: ep.Run, total: Any = None) -> None:
            pass

    model = TinyModel()
    before = [weight.detach().clone() for weight in model.parameters()]
    experiment(model=model, updater=Still()).run()
    pairs = zip(before, model.parameters(), strict=True)
    assert all(torch.equal(old, new) for old, new in pairs)
