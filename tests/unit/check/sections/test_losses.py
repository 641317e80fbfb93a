from __future__ import annotations

import pytest

from epochal.check.sections.losses import iter_loss_terms, loss_term_names
from epochal.config.node import from_plain
from epochal.errors import Place

LOSSES = """
    from torch import Tensor, nn

    class Own(nn.Module):
        def __init__(self, *, margin: float = 0.5): ...
        def forward(self, anchor: Tensor, other: Tensor, mask: Tensor | None = None): ...

    class Heir(Own): ...

    def simple(pred: Tensor, target: Tensor, *, alpha: float, beta: float = 1.0): ...

    def whole(out, batch): ...
"""
METRICS = """
    import epochal as ep

    class Worst(ep.Metric):
        def update(self, logits, mask=None): ...
"""
BARE = """
    import epochal as ep

    class Bare(ep.Task):
        def batch_forward(self, model, batch): ...

    class Asking(Bare):
        def batch_loss(self, out, batch, loss_fn): return loss_fn(out, batch)

    class Heir(ep.Task):
        def batch_forward(self, model, batch): ...
        def batch_loss(self, out, batch): ...
"""


@pytest.fixture
def problems(check_dict, write_files):
    """The problems of a config with this section ``loss``."""
    write_files({"user/losses.py": LOSSES, "user/bare.py": BARE})

    def run(loss, task="user.bare.Bare", **sections):
        report = check_dict(task={"type": task}, loss=loss, **sections)
        return [(one.key, one.what, one.hint) for one in report.problems]

    return run


CE = {"type": "cross_entropy", "inputs": {"input": "out.logits", "target": "batch.label"}}


def test_good_losses_are_accepted_without_batch_loss(problems) -> None:
    for loss in (
        "cross_entropy",
        CE,
        {**CE, "label_smoothing": 0.1, "weight": 2, "name": "ce"},
        {"type": "CrossEntropyLoss", "label_smoothing": 0.1},
        {"type": "torch.nn.SmoothL1Loss", "beta": 2.0},
        [CE, {"type": "mse", "weight": 0.5, "inputs": {"input": "out.1", "target": "batch.y.z"}}],
        {"ce": CE, "aux": {"type": "user.losses.whole"}},
        {
            "type": "user.losses.simple",
            "alpha": 0.5,
            "inputs": {"pred": "out", "target": "batch.y"},
        },
        {"type": "user.losses.Own", "margin": 1.0, "inputs": {"anchor": "out.a", "other": "out.b"}},
    ):
        assert problems(loss) == []


def test_terms_are_named_by_name_key_or_type() -> None:
    def names(loss):
        root = from_plain({"loss": loss}, place=Place("test"))
        return [(path, name) for path, name, _ in iter_loss_terms(root)]

    assert names({"type": "mse"}) == [("loss", "loss")]
    assert names({"type": "mse", "name": "a"}) == [("loss", "a")]
    assert names([{"type": "torch.nn.L1Loss"}, {"type": "mse", "name": "b"}, "l1"]) == [
        ("loss.0", "L1Loss"),
        ("loss.1", "b"),
        ("loss.2", "l1"),
    ]
    assert names({"a": {"type": "mse"}, "b": {"type": "l1"}}) == [("loss.a", "a"), ("loss.b", "b")]
    assert loss_term_names(from_plain({"loss": ["l1"]}, place=Place("test"))) == {"l1", "loss"}
    assert loss_term_names(from_plain({}, place=Place("test"))) == set()


def test_mistakes_in_inputs_are_reported_with_a_hint(problems) -> None:
    inherited = {"anchor": "out.a", "other": "out.b", "maks": "batch.m"}
    route = "must be out, batch, or a path into one of them, got"
    for spec, key, what, hint in (
        ({"type": "mse", "inputs": {"inptu": "out.a", "target": "batch.b"}}, "inptu",
         "epochal.components.losses.Mse takes no 'inptu'", "did you mean 'input'?"),
        ({"type": "CrossEntropyLoss", "inputs": {"input": "out.a"}}, "target",
         "missing; torch.nn.modules.loss.CrossEntropyLoss requires it", "add target: batch.target"),
        ({"type": "user.losses.Heir", "inputs": inherited}, "maks",
         "user.losses.Heir takes no 'maks'", "did you mean 'mask'?"),
        ({"type": "mse", "inputs": {"input": "logits", "target": "batch.a"}}, "input",
         f"{route} 'logits'", "write out.logits or batch.logits"),
        ({"type": "mse", "inputs": {"input": "outt.logits", "target": "batch.a"}}, "input",
         f"{route} 'outt.logits'", "did you mean 'out.logits'?"),
    ):  # fmt: skip
        assert problems({"a": spec}) == [(f"loss.a.inputs.{key}", what, hint)]
    ((key, what, _),) = problems({"type": "mse", "inputs": {"input": "out..a", "target": "batch"}})
    assert (key, what) == ("loss.inputs.input", f"{route} 'out..a'")


def test_options_of_a_loss_function_are_its_keyword_arguments(problems) -> None:
    keys = [key for key, *_ in problems({"type": "user.losses.simple", "alhpa": 1, "pred": 2})]
    assert sorted(keys) == ["loss.alhpa", "loss.pred"]
    (problem,) = problems({"type": "user.losses.simple"})
    assert problem[0] == "loss.alpha"
    assert "requires it" in problem[1]


def test_two_terms_of_one_name_are_reported(problems) -> None:
    (problem,) = problems(["mse", "mse"])
    assert problem == (
        "loss.1",
        "two terms are called 'mse'",
        "give one of them another `name:`",
    )


def test_mistakes_in_terms_are_reported(problems) -> None:
    for loss, key, what in (
        ([{"type": "mse", "name": "loss"}], "loss.0", "'loss' is the name of the sum of all terms"),
        ([{"type": "mse", "name": "a/b"}], "loss.0", "a term cannot be called 'a/b'"),
        ({"a": {"type": "mse", "name": "b"}}, "loss.a.name", "the key already names the term 'a'"),
        ("cross_entrpy", "loss.type", "unknown loss 'cross_entrpy'"),
        ({"type": "MSELoss", "reduction": "sum"}, "loss.reduction", "a term must be a mean"),
        ({"type": "MSELoss", "reduction": "none"}, "loss.reduction", "a term must be a mean"),
        (
            [{"type": "mse", "weight": 0}, {"type": "l1", "weight": 0.0}],
            "loss",
            "every term has the weight 0, so nothing is trained",
        ),
    ):
        ((found_key, found_what, hint),) = problems(loss)
        assert found_key == key, loss
        assert found_what.startswith(what), loss
        assert hint, loss
    assert not problems([{"type": "mse", "weight": 0}, {"type": "l1"}])


def test_inputs_of_metrics_are_checked_like_those_of_losses(check_dict, write_files) -> None:
    write_files({"user/losses.py": LOSSES + METRICS})
    f1 = {"type": "torchmetrics.classification.MulticlassF1Score", "num_classes": 3}
    fed = {"preds": "out.logits", "target": "batch.label"}
    for entry, mistakes in (
        (f1 | {"inputs": fed}, []),
        ({"type": "torchmetrics.AUROC", "task": "binary", "inputs": fed}, []),
        ({"type": "user.losses.Worst", "inputs": {"logits": "out.logits"}}, []),
        ({"type": "user.losses.simple", "alpha": 1.0}, []),
        (
            f1 | {"inputs": {"preds": "outs.logits", "target": "batch.label"}},
            [("metrics.0.inputs.preds", "did you mean 'out.logits'?")],
        ),
        (
            f1 | {"inputs": {"pred": "out.logits", "target": "batch.label"}},
            [("metrics.0.inputs.pred", "did you mean 'preds'?")],
        ),
        (
            {"type": "user.losses.Worst", "inputs": {}},
            [("metrics.0.inputs.logits", "add logits: out.logits")],
        ),
        (
            {"type": "user.losses.simple", "alpha": 1.0, "inputs": {"prd": "out", "target": "out"}},
            [("metrics.0.inputs.prd", "did you mean 'pred'?")],
        ),
        ({"type": "user.losses.simple"}, [("metrics.0.alpha", "add alpha: <a number>")]),
    ):
        report = check_dict(metrics=[entry])
        assert [(one.key, one.hint) for one in report.problems] == mistakes, entry


def test_a_section_that_is_no_loss_is_reported(problems) -> None:
    for loss in (3, [3], {"a": 3}, []):
        assert problems(loss)


def test_a_task_that_computes_its_own_loss_contradicts_the_section(problems) -> None:
    (problem,) = problems(CE, task="user.bare.Heir")
    assert problem == (
        "loss",
        "user.bare.Heir already computes the loss in batch_loss",
        "remove one of them, or write def batch_loss(self, out, batch, loss_fn)",
    )


def test_a_task_may_take_the_loss_of_the_config(problems) -> None:
    assert problems(CE, task="user.bare.Asking") == []


def test_terms_can_be_monitored(problems) -> None:
    assert problems({"ce": CE}, monitor="-train/ce") == []
    (problem,) = problems({"ce": CE, "aux": {"type": "mse"}}, monitor="-train/axu")
    assert problem[2] == "did you mean '-train/aux'?"
    assert problems({"ce": CE}, monitor="-val/ce", train={"eval_loss": True}) == []
