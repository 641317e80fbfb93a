from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from epochal.check.sections.methods import (
    find_missing_return,
    find_uncalled_methods,
    find_wrong_parameters,
    has_method,
    known_methods,
)
from epochal.registry.module_finder import ModuleFinder

if TYPE_CHECKING:
    from epochal.registry.parsed_module import Definition


ORDINARY = (
    "batch_size batch_loss_fn batch_losses batch_stats forward load to_device metrics setup_data "
    "test_step train_step train evaluate errors step_size epoch_loss save_state_dict"
)


@pytest.fixture
def class_of(write_files):
    def read(text: str, name: str) -> tuple[Definition, ModuleFinder]:
        finder = ModuleFinder([write_files({"m.py": text})])
        found = finder.find_definition(f"m.{name}")
        assert found is not None
        return found, finder

    return read


def test_a_misspelt_task_method_is_shown_in_its_file(class_of) -> None:
    for written, meant in (
        ("batch_metrics", "batch_metric"),
        ("pre_batch_foward", "pre_batch_forward"),
        ("extra_batch_metric", "extra_batch_metrics"),
        ("on_better_modle", "on_better_model"),
        ("epoch_ends", "epoch_end"),
        ("onBatchEnds", "onBatchEnd"),
        ("epoch_metrics", "epoch_metric"),
        ("on_epoch_ends", "on_epoch_end"),
        ("before_epochs", "before_epoch"),
        ("on_val_start", "on_eval_start"),
    ):
        text = f"import epochal as ep\nclass T(ep.Task):\n    def {written}(self, out): ...\n"
        definition, finder = class_of(text, "T")
        (problem,) = find_uncalled_methods("task", "task", definition, finder)
        assert problem.what == f"m.T has a method {written!r}, which nothing calls"
        assert problem.hint.startswith(f"did you mean {meant!r}?")
        place = problem.place
        assert (place.line, place.column, place.width) == (3, 9, len(written))


def test_known_private_used_and_ordinary_methods_are_no_typos(class_of) -> None:
    for body in (
        "def batch_metric(self, out, batch): ...",
        "def epoch_end(self, run, split): ...",
        "def after_all_iter(self): ...",
        "def _batch_metrics(self): ...",
        "def load_images(self): ...",
        "def batch_metrics(self): ...\n    def batch_metric(self): return self.batch_metrics()",
        "@property\n    def batch_metrics(self): ...",
        *(f"def {name}(self): ..." for name in ORDINARY.split()),
    ):
        text = f"import epochal as ep\nclass T(ep.Task):\n    {body}\n"
        assert list(find_uncalled_methods("task", "task", *class_of(text, "T"))) == [], body


def test_a_method_that_the_module_calls_is_no_typo(class_of) -> None:
    text = """
        import epochal as ep
        class T(ep.Task):
            def batch_metrics(self): ...
        def report(task): return task.batch_metrics()
    """
    assert list(find_uncalled_methods("task", "task", *class_of(text, "T"))) == []


def test_a_misspelt_event_in_a_base_of_a_hook_is_found(class_of) -> None:
    text = """
        import epochal as ep
        class Root(ep.Hook):
            def step_ends(self, run): ...
        class H(Root):
            def batch_metrics(self): ...
    """
    problems = list(find_uncalled_methods("hooks.0", "hook", *class_of(text, "H")))
    hints = [problem.hint.split("?")[0] for problem in problems]
    assert hints == ["did you mean 'batch_end'", "did you mean 'step_end'"]


def test_a_hook_method_that_no_event_calls_is_a_problem_whatever_its_name(class_of) -> None:
    for name, hint in (
        ("on_run_finish", "did you mean 'on_run_end'?"),
        ("on_end", "did you mean 'run_end'?"),
        ("close", "no event has this name;"),
    ):
        text = f"""
            import epochal as ep
            class H(ep.Hook):
                def step_end(self, run): ...
                def {name}(self, run): ...
        """
        (problem,) = find_uncalled_methods("hooks.0", "hook", *class_of(text, "H"))
        assert problem.what == f"m.H has a method {name!r}, which nothing calls"
        assert problem.hint.startswith(hint), problem.hint
        assert problem.place.line == 5


def test_a_decorated_hook_method_that_no_event_calls_is_a_problem(class_of) -> None:
    for decorator in ("torch.no_grad()", "functools.cache", "mine", "contextmanager"):
        text = f"""
            import epochal as ep
            class H(ep.Hook):
                def step_end(self, run): ...
                @{decorator}
                def on_run_finish(self, run): ...
        """
        found = find_uncalled_methods("hooks.0", "hook", *class_of(text, "H"))
        assert [one.place.line for one in found] == [6], decorator


def test_hook_methods_that_others_call_are_accepted(class_of) -> None:
    for body in (
        "def state_dict(self): ...\n    def load_state_dict(self, state): ...",
        "def summary(self): ...\n    def run_end(self, run): return self.summary()",
        "def _summary(self): ...",
        "@property\n    def summary(self): ...",
        "@functools.cached_property\n    def summary(self): ...",
        "@staticmethod\n    def summary(): ...",
        "@classmethod\n    def summary(cls): ...",
        "_x = property()\n    @_x.setter\n    def summary(self, value): ...",
        "@no_grad()\n    def summary(self): ...\n    def run_end(self): return self.summary()",
    ):
        text = f"import epochal as ep\nclass H(ep.Hook):\n    step_end = print\n    {body}\n"
        assert find_uncalled_methods("hooks.0", "hook", *class_of(text, "H")) == [], body
    unknown = "from nowhere import Base\nclass H(Base):\n    def summary(self): ...\n"
    assert find_uncalled_methods("hooks.0", "hook", *class_of(unknown, "H")) == []
    mixer = """
        from epochal.hooks.mixing import BatchMixer
        class H(BatchMixer):
            def mix(self, inputs, share): ...
    """
    assert find_uncalled_methods("hooks.0", "hook", *class_of(mixer, "H")) == []


def test_a_task_among_the_hooks_is_one_problem(class_of) -> None:
    text = """
import epochal as ep
class T(ep.Task):
    def batch_forward(self, model, batch): ...
    def batch_loss(self, out, batch): ...
"""
    (problem,) = find_uncalled_methods("hooks.0", "hook", *class_of(text, "T"))
    assert problem.what == "m.T is a task, not a hook"
    assert problem.hint == "name it in the section task, or write a subclass of ep.Hook"


def test_a_hook_without_an_event_method_is_a_problem(class_of) -> None:
    text = "import epochal as ep\nclass H(ep.Hook):\n    def _helper(self): ...\n"
    (problem,) = find_uncalled_methods("hooks.0", "hook", *class_of(text, "H"))
    assert problem.what == "m.H has no method that an event calls"
    assert problem.hint.startswith("write one of them: setup, assembled, run_start")
    assert (problem.place.line, problem.place.column) == (2, 7)
    for text in (
        "class H:\n    def __init__(self):\n        self.step_end = print\n",
        "def H():\n    return object()\n",
    ):
        assert find_uncalled_methods("hooks.0", "hook", *class_of(text, "H")) == [], text


def test_methods_are_found_in_bases_and_may_be_in_unknown_bases(class_of) -> None:
    text = """
        import epochal as ep
        from nowhere import Base
        class A(ep.Task):
            def batch_loss(self): ...
        class B(A):
            batch_metric = staticmethod(len)
        class C(Base): ...
    """
    assert has_method(*_ask(class_of(text, "B"), "batch_loss")) is True
    assert has_method(*_ask(class_of(text, "B"), "batch_metric")) is True
    assert has_method(*_ask(class_of(text, "B"), "epoch_metric")) is False
    assert has_method(*_ask(class_of(text, "C"), "batch_loss")) is None


def test_a_method_without_a_return_is_shown_in_its_file(class_of) -> None:
    for body, is_problem in (
        ("\n        loss = out.mean()", True),
        ("cross_entropy(out, batch)", True),
        ("\n        if out: return\n        print(out)", True),
        ("\n        def inner(): return 1\n        inner()", True),
        ("\n        if out: return out", False),
        ("return None", False),
        ("...", False),
        ("'Later.'", False),
        ("raise NotImplementedError", False),
        ("yield out", False),
    ):
        head = "import epochal as ep\nclass T(ep.Task):\n    def batch_loss(self, out, batch):"
        found = class_of(f"{head} {body}\n", "T")
        problems = find_missing_return("task.type", "batch_loss", *found)
        assert bool(problems) is is_problem, body
        for problem in problems:
            assert problem.what == "m.T.batch_loss returns nothing: a `return` is missing"
            assert problem.hint == 'end it with return {"loss": (tensor, count)}'
            assert (problem.place.line, problem.place.column) == (3, 9)
    text = """
        import epochal as ep
        class A(ep.Task):
            def batch_loss(self, out, batch): out.mean()
        class B(A):
            batch_loss = staticmethod(len)
    """
    assert find_missing_return("task.type", "batch_loss", *class_of(text, "A")) != []
    assert find_missing_return("task.type", "batch_loss", *class_of(text, "B")) == []


def test_a_method_with_other_parameters_than_its_call_is_shown_in_its_file(class_of) -> None:
    for written, called in (
        ("batch_forward(self, batch)", "batch_forward(model, batch)"),
        ("batch_forward(model, batch)", "batch_forward(model, batch)"),
        ("batch_forward(self, model, batch, epoch)", "batch_forward(model, batch)"),
        ("batch_forward(self, model, batch, *, epoch)", "batch_forward(model, batch)"),
        ("batch_loss(self, out)", "batch_loss(out, batch)"),
        ("batch_loss(self, model, out, batch, epoch)", "batch_loss(out, batch, loss_fn)"),
        ("batch_metric(self, model, out, batch)", "batch_metric(out, batch)"),
        ("pre_batch_forward(self, model, batch)", "pre_batch_forward(batch)"),
        ("post_batch_forward(self, out)", "post_batch_forward(out, batch)"),
        ("postprocess(self, out)", "postprocess(out, batch)"),
    ):
        found = class_of(f"import epochal as ep\nclass T(ep.Task):\n    def {written}: ...\n", "T")
        (problem,) = find_wrong_parameters("task.type", *found, has_loss=False)
        name, _, parameters = called.rstrip(")").partition("(")
        assert problem.what.startswith(f"m.T.{name} takes ("), written
        assert problem.what.endswith(f"but is called with ({parameters})"), written
        assert problem.hint.startswith(f"write def {name}(self, "), written
        assert (problem.place.line, problem.place.column) == (3, 9)


def test_a_third_parameter_of_batch_loss_needs_a_loss(class_of) -> None:
    for body, has_loss, is_problem in (
        ("def batch_loss(self, model, out, batch): ...", False, True),
        ("def batch_loss(self, out, batch, loss_fn): ...", False, True),
        ("def batch_loss(self, out, batch, loss_fn): ...", True, False),
        ("def batch_loss(self, out, batch, loss_fn=None): ...", False, False),
        ("loss_fn = print\n    def batch_loss(self, out, batch, loss_fn): ...", False, False),
        (
            "def __init__(self): self.loss_fn = print\n"
            "    def batch_loss(self, out, batch, loss_fn): ...",
            False,
            False,
        ),
    ):
        found = class_of(f"import epochal as ep\nclass T(ep.Task):\n    {body}\n", "T")
        problems = find_wrong_parameters("task.type", *found, has_loss=has_loss)
        assert bool(problems) is is_problem, body
        for problem in problems:
            assert problem.what.startswith("m.T.batch_loss takes the loss of the config as its ")
            assert problem.hint == "add a section loss, or write def batch_loss(self, out, batch)"


def test_methods_that_can_be_called_are_accepted(class_of) -> None:
    for body in (
        "def batch_forward(self, model, batch): ...",
        "def batch_forward(self, net, samples, training=True): ...",
        "def batch_forward(self, *args): ...",
        "def batch_forward(self, model, *rest, **options): ...",
        "def batch_forward(self, model, batch, *, epoch=0): ...",
        "@torch.no_grad()\n    def batch_forward(self, batch): ...",
        "@staticmethod\n    def batch_forward(model, batch): ...",
        "batch_forward = print",
        "def batch_loss(self, out, batch): ...",
        "def __init__(self):\n        self.batch_forward = print\n"
        "    def batch_forward(self, batch): ...",
    ):
        found = class_of(f"import epochal as ep\nclass T(ep.Task):\n    {body}\n", "T")
        assert find_wrong_parameters("task.type", *found, has_loss=False) == [], body
    unknown = "from nowhere import Base\nclass T(Base):\n    def batch_forward(self, batch): ...\n"
    assert find_wrong_parameters("task.type", *class_of(unknown, "T"), has_loss=False) == []


def _ask(found: tuple[Definition, ModuleFinder], name: str) -> tuple[Definition, str, ModuleFinder]:
    return found[0], name, found[1]


def test_tasks_have_more_methods_than_hooks() -> None:
    finder = ModuleFinder()
    assert {"batch_loss", "epoch_end", "onBatchEnd"} <= known_methods("task", finder)
    assert "batch_loss" not in known_methods("hook", finder)
