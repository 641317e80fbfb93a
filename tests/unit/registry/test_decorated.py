from __future__ import annotations

import sys

import pytest

from epochal.errors import UnknownComponentError

MODULE = """
    import epochal as ep
    from epochal import register as reg

    @ep.register("model")
    class Mlp: pass

    @reg("data", name="shapes")
    def load(path: str): ...

    @ep.register("hook", "Console", override=True)
    class Mine: pass

    @ep.register(KIND)
    class Computed: pass

    @other.register("model", "stranger")
    class Stranger: pass

    raise SystemExit("imported")
"""


def test_decorators_are_read_without_running_the_module(write_project) -> None:
    registry = write_project({"p/parts.py": MODULE}, imports=("p.parts",))
    model = registry.find("model", "Mlp")
    assert (model.module, model.qualname, model.line) == ("p.parts", "Mlp", 6)
    assert registry.find("data", "shapes").qualname == "load"
    assert registry.find("hook", "Console").dotted == "p.parts.Mine"
    assert registry.names("model") == ("Mlp",)
    assert registry.problems == ()
    assert "p.parts" not in sys.modules


def test_a_module_that_is_not_listed_registers_nothing(write_project) -> None:
    registry = write_project({"p/parts.py": MODULE})
    with pytest.raises(UnknownComponentError, match="unknown model 'Mlp'"):
        registry.find("model", "Mlp")


def test_a_package_brings_the_modules_that_it_imports(write_project) -> None:
    files = {
        "p/__init__.py": "from . import a\nfrom p.b import *",
        "p/a.py": "from epochal.registry import register\n@register('model')\nclass A: pass",
        "p/b.py": "from epochal.registry import register\n@register('model')\nclass B: pass",
        "p/c.py": "from epochal.registry import register\n@register('model')\nclass C: pass",
    }
    registry = write_project(files, imports=("p",))
    assert registry.names("model") == ("A", "B")


def test_two_modules_that_claim_one_name_are_a_problem(write_project) -> None:
    text = "import epochal as ep\n@ep.register('model', 'net')\nclass Net: pass"
    registry = write_project({"a.py": text, "b.py": text}, imports=("a", "b"))
    (problem,) = registry.problems
    assert problem.what == "'b.Net' cannot have this name, which 'a.Net' already has"


def test_a_built_in_name_cannot_be_claimed_silently(write_project) -> None:
    text = "import epochal as ep\n@ep.register('schedule', 'cosine')\nclass Mine: pass"
    registry = write_project({"a.py": text}, imports=("a",))
    assert "epochal.components.schedules.Cosine" in registry.problems[0].what


def test_imports_outside_the_roots_or_missing_are_problems(write_project) -> None:
    for name, what in (
        ("os", "code of the standard library cannot be named in a config"),
        ("numpy", "'numpy' is outside the project's roots"),
        ("torch.nn", "'torch.nn' is outside the project's roots"),
        ("p.nothing", "there is no module 'p.nothing'"),
    ):
        registry = write_project({"p/__init__.py": ""}, imports=(name,))
        (problem,) = registry.problems
        assert (problem.key, problem.what) == ("imports.0", what), name


def test_hints_never_suggest_roots_that_cannot_be_listed(write_project) -> None:
    registry = write_project({"calendar.py": ""}, imports=("os", "torch.nn", "calendar"))
    assert len(registry.problems) == 3
    assert not any("roots =" in problem.hint for problem in registry.problems)
    assert "Python's own module 'calendar' hides" in registry.problems[2].what
