"""Which dotted paths a config may name, decided from source files without importing."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from epochal.errors import nearest, nearest_few
from epochal.registry.module_finder import ModuleFinder, is_reserved, is_standard
from epochal.registry.parsed_module import Definition, Import, Module, Variable
from epochal.registry.project import FIXED_ROOTS, Project

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Only components of our own package; the rest could read files or start runs.
_OWN_MODULES = (
    "epochal.adapters",
    "epochal.components",
    "epochal.hooks",
    "epochal.engine.interfaces.task",
    "epochal.engine.runner",
    "epochal.engine.step.updater",
)

# Modules that configs of earlier versions may name, and where their components are now.
_MOVED_MODULES = {
    "epochal.components.average.*": "epochal.components.average",
    "epochal.components.losses.*": "epochal.components.losses",
    "epochal.components.metrics.*": "epochal.components.metrics",
    "epochal.components.nn.*": "epochal.components.nn",
    "epochal.components.optim.*": "epochal.components.schedules",
    "epochal.engine.task": "epochal.engine.interfaces.task",
    "epochal.engine.update": "epochal.engine.step.updater",
    "epochal.hooks.console.progress": "epochal.hooks.console.console",
    "epochal.hooks.csv_log": "epochal.hooks.points_file",
    "epochal.hooks.final_weights": "epochal.hooks.safetensors_export",
    "epochal.hooks.json_lines": "epochal.hooks.points_file",
    "epochal.hooks.mixing.*": "epochal.hooks.mixing",
    "epochal.hooks.profiler.*": "epochal.hooks.profiler",
}

# Values of variables that may be a class or function; loading checks it.
_MAY_BE_CODE = (ast.Name, ast.Attribute, ast.Call, ast.IfExp)
_TRIES = 3


@final
@dataclass(frozen=True, slots=True)
class Target:
    """A dotted path that may be built; without a definition its source could not be read."""

    module: str
    name: str
    definition: Definition | None = None


class Refused(Exception):  # noqa: N818 - never leaves the registry
    """Why a dotted path may not be built, and what to write instead."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint


def find_target(dotted: str, project: Project, finder: ModuleFinder) -> Target:
    """What a dotted path means, even if its module has moved since; else ``Refused``."""
    module, _, name = dotted.rpartition(".")
    for old in (module, f"{module.rpartition('.')[0]}.*"):
        dotted = f"{_MOVED_MODULES[old]}.{name}" if old in _MOVED_MODULES else dotted
    parts = _split(dotted)
    try:
        return _find_target(dotted, parts, project, finder)
    except Refused:
        hidden = hidden_by(parts[0], project, finder)
        if hidden is None:
            raise
    raise hidden


def _find_target(dotted: str, parts: list[str], project: Project, finder: ModuleFinder) -> Target:
    _check_root(dotted, parts, project, finder)
    module_name, _, name = dotted.rpartition(".")
    module = finder.find_module(module_name)
    if module is None:
        return _without_source(dotted, project, finder)
    if module.error is not None:
        line = module.error.lineno or 0
        raise Refused(f"{module.file.name}:{line} cannot be parsed: {module.error.msg}")
    # For a library with lazy imports, searching its source once is faster than following them.
    is_lazy = is_listed(dotted, project) and module.is_dynamic and name not in module.bindings
    is_absent = is_lazy and not finder.is_spelled(module, name)
    found = None if is_absent else finder.resolve(module, name)
    if isinstance(found, Definition):
        return _admit(dotted, found, project)
    return _explain(dotted, found, module, project, finder)


def _split(dotted: str) -> list[str]:
    parts = dotted.split(".")
    if ":" in dotted and all(part.isidentifier() for part in dotted.replace(":", ".").split(".")):
        raise Refused("dots separate all parts", f"write {dotted.replace(':', '.')!r}")
    if not all(part.isidentifier() for part in parts):
        raise Refused("every part between the dots must be a Python name")
    if not dotted.isascii():
        raise Refused("names of components are written in ASCII letters")
    if any(part.startswith("__") for part in parts):
        raise Refused("names with two leading underscores cannot be built")
    return parts


def _is_below(dotted: str, root: str) -> bool:
    return dotted == root or dotted.startswith(f"{root}.")


def is_listed(dotted: str, project: Project) -> bool:
    """Whether the project file names the package that ``dotted`` belongs to."""
    if is_standard(dotted.split(".")[0]):
        return False  # it could delete files or run commands
    return any(_is_below(dotted, root) for root in project.roots)


def is_allowed_module(dotted: str, project: Project) -> bool:
    """Whether a module is below the roots whose code this project's configs may use."""
    top = dotted.split(".")[0]
    if is_listed(dotted, project) or project.owns(top):
        return True
    return any(_is_below(dotted, root) for root in FIXED_ROOTS)


def hidden_by(top: str, project: Project, finder: ModuleFinder) -> Refused | None:
    """Why a module of the project cannot be imported, if another one has its name."""
    if not project.has_module(top):
        return None
    found = finder.find_module(top)
    folders = finder.find_folders(top) if found is None else (found.file.parent,)
    if any(folder in (own, own / top) for folder in folders for own in project.code_dirs):
        return None
    other = "Python's own module" if is_standard(top) else "the installed package"
    return Refused(
        f"{other} {top!r} hides the one in {project.dir}", f"give {top!r} there another name"
    )


def outside(top: str, why: str) -> Refused:
    """The refusal of a module outside the project's roots, with a hint."""
    if is_standard(top):
        hint = "write your own function or class that uses it"
        return Refused("code of the standard library cannot be named in a config", hint)
    return Refused(why, f'list it in pyproject.toml: [tool.epochal] roots = ["{top}"]')


def _check_root(dotted: str, parts: list[str], project: Project, finder: ModuleFinder) -> None:
    if is_allowed_module(dotted, project):
        return
    top = parts[0]
    if top == "torch":
        shown = ", ".join(root for root in FIXED_ROOTS if root.startswith("torch."))
        raise Refused("of torch only the classes under its component packages can be named", shown)
    roots = (root for root in project.roots if not is_standard(root.split(".")[0]))
    close = nearest(top, (*project.own_modules(), *roots, "torch", "epochal"), cutoff=0.7)
    if close is not None:
        raise Refused(
            f"there is no module {top!r}", f"did you mean {'.'.join([close, *parts[1:]])!r}?"
        )
    if not is_reserved(top) and not _exists(top, finder):
        own = ", ".join(project.own_modules()[:8])
        hint = "--user-dir names the folder of your code"
        hint = f"it has: {own}; {hint}" if own else hint
        raise Refused(f"there is no module {top!r} in {project.dir}", hint)
    raise outside(top, f"root {top!r} is not one of the project's roots")


def _admit(dotted: str, found: Definition, project: Project) -> Target:
    home = found.module.name
    target = Target(home, found.node.name, found)
    if is_listed(home, project):
        return target
    if not is_allowed_module(home, project):
        raise outside(
            home.split(".")[0], f"it comes from {home!r}, which is outside the project's roots"
        )
    top = home.split(".")[0]
    if top == "torch" and not isinstance(found.node, ast.ClassDef):
        raise Refused("it is a function of torch; only its classes can be named")
    if top == "epochal" and not any(_is_below(home, own) for own in _OWN_MODULES):
        raise Refused(
            "it is not a component", "components are in epochal.components and epochal.hooks"
        )
    if top in ("torch", "epochal") and found.node.name.startswith("_"):
        raise Refused("names with a leading underscore are private to their package")
    return target


def _without_source(dotted: str, project: Project, finder: ModuleFinder) -> Target:
    parts = dotted.split(".")
    known = 0
    while known < len(parts) - 1 and _exists(".".join(parts[: known + 1]), finder):
        known += 1
    module = finder.find_module(".".join(parts[:known])) if known else None
    # Modules have lower-case names: of a lazy package, `Model` in `Model.method` is a class.
    is_class = module is not None and parts[known][:1].isupper()
    if module is not None and (is_class or parts[known] in module.bindings):
        what = f"{parts[known]!r} is not a module; attributes of attributes cannot be built"
        raise Refused(what, f"write your own function that calls {'.'.join(parts[known:])}")
    if is_listed(dotted, project) and (known == 0 or module is None or module.is_dynamic):
        if known == 0 and not finder.find_folders(parts[0]):
            raise Refused(f"the package {parts[0]!r} is not installed")
        return Target(".".join(parts[:-1]), parts[-1])
    if known == 0 and parts[0] in FIXED_ROOTS:
        why = f"the package {parts[0]!r} is not installed"
        raise Refused(why, f"install it: pip install {parts[0]}")
    parent = ".".join(parts[:known])
    close = nearest(parts[known], finder.submodules(parent)) if known else None
    hint = f"did you mean {'.'.join([parent, close, *parts[known + 1 :]])!r}?" if close else ""
    raise Refused(f"there is no module {'.'.join(parts[: known + 1])!r}", hint)


def _exists(dotted: str, finder: ModuleFinder) -> bool:
    return finder.find_module(dotted) is not None or bool(finder.find_folders(dotted))


def _explain(
    dotted: str,
    found: Variable | Import | None,
    module: Module,
    project: Project,
    finder: ModuleFinder,
) -> Target:
    module_name, _, name = dotted.rpartition(".")
    if isinstance(found, Variable):
        if is_listed(dotted, project) and isinstance(found.value, _MAY_BE_CODE):
            return Target(module_name, name)
        raise Refused("it is a variable; only classes and functions can be named")
    if isinstance(found, Import):
        source = found.module if found.name is None else f"{found.module}.{found.name}"
        if found.name and is_listed(found.module, project):
            return Target(found.module, found.name)
        raise Refused(f"it is imported from {source!r}; only classes and functions can be named")
    if is_listed(dotted, project) and finder.may_hide(module, name):
        return Target(module_name, name)
    known = finder.public_names(module)
    close = _nearest_definition(name, known, finder)
    hint = f"did you mean '{module_name}.{close}'?" if close else _listing(module_name, known)
    raise Refused(f"{module_name!r} has no class or function {name!r}", hint)


def _nearest_definition(name: str, known: Mapping[str, str], finder: ModuleFinder) -> str:
    """The nearest name that is a class or function, or nothing."""
    for close in nearest_few(name, known, _TRIES):
        if finder.find_definition(f"{known[close]}.{close}") is not None:
            return close
    return ""


def _listing(module_name: str, known: Iterable[str]) -> str:
    shown = ", ".join(sorted(known)[:8])
    return f"{module_name} has: {shown}" if shown else ""
