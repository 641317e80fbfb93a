"""Tests of plans of runs that are not started."""

from __future__ import annotations

from pathlib import Path

import pytest

from epochal.check import Opaque
from epochal.errors import ConfigError
from epochal.experiment.tools.plan_run import plan_file, printable_default
from small_project import tree, write


def test_plan_shows_parts_order_and_defaults_and_writes_nothing(shop: Path) -> None:
    before = tree(shop)
    (planned,) = plan_file(Path("config.yaml"), device="cpu")
    assert (planned.title, planned.runner, planned.device) == ("shop", "Train", "cpu")
    assert "15 parameters" in planned.model
    assert "train 24 samples" in planned.data
    assert planned.limits.steps == 12
    assert any(row.hook == "Recording.step_end" for row in planned.rows)
    assert any(one.key == "model.dropout" for one in planned.defaults)
    assert tree(shop) == before


def test_plan_tells_the_terms_of_a_loss(shop: Path) -> None:
    text = "from shop.parts import Points\nclass Bare(Points): batch_loss = None"
    write(shop / "shop" / "bare.py", text)
    loss = "loss={ce: {type: CrossEntropyLoss}, own: {type: mse, weight: 0.5}}"
    overrides = ["task={type: shop.bare.Bare}", loss]
    (planned,) = plan_file(Path("config.yaml"), overrides=overrides)
    assert planned.loss == "ce + 0.5 own"


def test_each_variant_has_a_plan(shop: Path) -> None:
    plans = list(plan_file(Path("config.yaml"), variant="all"))
    assert [planned.title for planned in plans] == ["shop (variant hot)", "shop (variant long)"]
    assert [planned.limits.epochs for planned in plans] == [2, 3]


def test_mistakes_are_raised(shop: Path) -> None:
    with pytest.raises(ConfigError, match=r"optim\.lrr"):
        list(plan_file(Path("config.yaml"), overrides=["optim.lrr=1"]))


def test_plan_as_json_holds_plain_values(shop: Path) -> None:
    import json

    (planned,) = plan_file(Path("config.yaml"))
    values = json.loads(json.dumps(planned.to_json()))
    assert values["title"] == "shop"
    assert values["rows"][0]["event"]


def test_default_that_only_code_knows_is_shown_as_written() -> None:
    assert printable_default(Opaque("make()")) == str(Opaque("make()"))
    assert printable_default(3) == 3
