"""Tests of optimizers in their fastest form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import epochal as ep
from epochal.experiment.build.optimizer import use_lr_tensors, with_fused_options
from epochal.experiment.tools.plan_run import plan_file
from epochal.testing import TinyModel, TinyTask
from small_project import write

if TYPE_CHECKING:
    from pathlib import Path


class Keep(ep.Hook):
    """Keeps the optimizer and the weights of a run."""

    def run_start(self, run: ep.Run) -> None:
        self.optimizer: Any = run.optimizer
        self.model = run.model


def trained(optim: Any, model: Any = None, **sections: Any) -> Keep:
    keep = Keep()
    torch.manual_seed(0)
    experiment = ep.Experiment(
        task=TinyTask(),
        model=TinyModel() if model is None else model,
        optim=optim,
        hooks=[keep],
        choices={"no_file": True, "device": "cpu"},
        **{"train": {"for": "2ep"}, **sections},
    )
    result = experiment.fit()
    assert result.ok, result.traceback
    return keep


def test_an_optimizer_of_a_config_is_fused_if_torch_can() -> None:
    for kind in ("AdamW", "Adam", "SGD", "Adagrad"):
        (group,) = trained({"type": kind, "lr": 0.01}).optimizer.param_groups
        assert group["fused"], kind
        assert isinstance(group["lr"], float)
    assert "fused" not in trained({"type": "RMSprop"}).optimizer.param_groups[0]


def test_a_form_that_the_config_names_stays() -> None:
    defaults = {"fused": None, "capturable": False, "differentiable": False}
    for written, is_fused in (
        ({"fused": False}, False),
        ({"foreach": True}, False),
        ({"foreach": False}, False),
        (defaults, True),
    ):
        optimizer = trained({"type": "AdamW", "lr": 0.01, **written}).optimizer
        assert bool(optimizer.param_groups[0]["fused"]) == is_fused, written


def test_an_optimizer_given_as_an_object_keeps_its_form() -> None:
    model = TinyModel()
    optimizer = torch.optim.AdamW(model.parameters())
    assert trained(optimizer, model).optimizer.param_groups[0]["fused"] is None


def test_steps_are_those_of_the_fused_optimizer_in_a_hand_written_loop() -> None:
    compare_with_loop(torch.optim.AdamW, lr=0.01, weight_decay=0.1)
    compare_with_loop(torch.optim.SGD, lr=0.1, momentum=0.9)
    compare_with_loop(torch.optim.Adagrad, lr=0.1)


def compare_with_loop(kind: Any, **arguments: Any) -> None:
    class Ordered(TinyTask):
        def __init__(self) -> None:
            super().__init__()
            dataset = self.train_loader.dataset
            self.train_loader = torch.utils.data.DataLoader(dataset, batch_size=4)

    model, by_hand, task = nn.Linear(4, 3), nn.Linear(4, 3), Ordered()
    by_hand.load_state_dict(model.state_dict())
    ep.Experiment(
        task=task,
        model=model,
        optim={"type": kind.__name__, **arguments},
        train={"for": "2ep"},
        choices={"no_file": True, "device": "cpu"},
    ).fit()
    optimizer = kind(by_hand.parameters(), fused=True, **arguments)
    for _ in range(2):
        for batch in Ordered().train_loader:
            out = task.batch_forward(by_hand.train(), batch)
            optimizer.zero_grad()
            task.batch_loss(out, batch)["loss"][0].backward()
            optimizer.step()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, by_hand.state_dict()[name])


def test_sizes_that_the_first_batch_sets_may_be_fused() -> None:
    keep = trained({"type": "AdamW", "lr": 0.1}, nn.Sequential(nn.LazyLinear(3)))
    assert keep.optimizer.param_groups[0]["fused"]
    assert len(keep.optimizer.state) == len(list(keep.model.parameters()))


def spec_for(kind: str, model: nn.Module) -> Any:
    from pathlib import Path

    from epochal.config import from_plain
    from epochal.errors import Place
    from epochal.experiment.build.builder import Builder
    from epochal.registry import Registry, find_project

    builder = Builder(Registry(find_project(Path.cwd())))
    spec = builder.read(from_plain({"type": kind}, place=Place("here")), "optim")
    factory = builder.registry.load(spec.factory)
    return with_fused_options(spec, factory, list(model.parameters()), model)


def test_parameters_that_fused_kernels_do_not_support_are_not_fused() -> None:
    class Odd(nn.Parameter):
        pass

    models = {
        "sparse": nn.Embedding(3, 2, sparse=True),
        "sparse bag": nn.EmbeddingBag(3, 2, sparse=True, mode="sum"),
        "complex": nn.ParameterList([torch.zeros(2, dtype=torch.complex64)]),
        "meta": nn.Linear(2, 2, device="meta"),
        "nothing": nn.Tanh(),
        "subclass": nn.ParameterList([Odd(torch.zeros(2))]),
    }
    for kind in ("SGD", "Adagrad"):
        assert "fused" in spec_for(kind, nn.Linear(2, 2)).arguments
        for name, model in models.items():
            assert "fused" not in spec_for(kind, model).arguments, (kind, name)


def test_rates_stay_numbers_on_the_cpu() -> None:
    optimizer = torch.optim.AdamW(TinyModel().parameters(), lr=0.1, fused=True)
    use_lr_tensors(optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert isinstance(optimizer.param_groups[0]["lr"], float)


def test_the_optimizer_of_a_function_keeps_its_form(shop: Path) -> None:
    write(
        shop / "shop" / "tuned.py",
        """
        import torch
        def tuned(params, lr: float, momentum: float, fused: bool = False):
            return torch.optim.SGD(params, lr=lr, momentum=momentum, fused=fused)
        """,
    )
    (planned,) = plan_file(
        "config.yaml", overrides=["optim={type: shop.tuned.tuned, momentum: 0.5, lr: 0.1}"]
    )
    assert planned.optimizer == "SGD"


def test_record_and_plan_show_the_chosen_form(shop: Path) -> None:
    result = ep.run("config.yaml", device="cpu")
    assert result.dir is not None
    observed = json.loads((result.dir / "config" / "observed.json").read_text())
    assert observed["optim"]["arguments"]["fused"] is True
    (planned,) = plan_file("config.yaml", device="cpu")
    assert planned.optimizer.endswith(" (fused)")
