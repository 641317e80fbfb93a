"""The experiment: a config and parts given as objects, built step by step into a run."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from epochal.check import build_registry
from epochal.errors import ConfigError, EpochalError, Problem, misspelling_of
from epochal.experiment.build import build_parts, optimizer
from epochal.experiment.build.meta_model import build_without_values
from epochal.experiment.config.experiment_class import describe_class
from epochal.experiment.config.inputs import (
    ExperimentInputs,
    check_given_part,
    check_inputs,
    load_inputs,
)
from epochal.experiment.run_experiment import run_experiment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer

    from epochal.check import CheckReport
    from epochal.engine import Metric, RunResult, Task
    from epochal.engine.interfaces.schedule import AnySchedule
    from epochal.experiment.build.builder import Assembly
    from epochal.experiment.config.choices import Choices
    from epochal.experiment.config.script_arguments import Args

Section = Any  # a value of a config, or an object that is a part


class Experiment:
    """Something that can be run: a config, parts given as objects, or both.

    Subclass it to replace single build steps, or to define ``prepare_task`` and
    ``prepare_model``. Each step has its own seed, so a change to one part never changes another.

    Args:
        config: A file, a mapping, or the result of ``ep.parse_args``.
        overrides: Changes such as ``optim.lr=1e-3``.
        test: Evaluate only; neither optimizer nor schedule is built.
        choices: What belongs to this run alone, such as ``{"device": "cpu"}``.
        sections: Config sections by name, as values or as ready objects:
            ``task=Digits(), model=Mlp(), optim={"type": "AdamW"}, train={"for": "5ep"}``.
    """

    def __init__(
        self,
        config: object = None,
        *,
        overrides: Sequence[str] = (),
        test: bool = False,
        choices: Choices | None = None,
        **sections: Section,
    ) -> None:
        _check_methods(type(self))
        is_named = isinstance(config, ExperimentInputs)  # by its own config: see load_experiment
        inputs = load_inputs(config, overrides, choices or {}, sections, is_test=test)
        kind = describe_class(type(self), Experiment, is_named=is_named)
        if kind is None:
            _refuse_named_class(inputs)
        else:
            given = replace(inputs.given, overridden=kind.steps)
            inputs = replace(inputs, given=given, kind=kind, checked=None)
        self.inputs = inputs
        self._is_named = is_named
        self._known_attributes = frozenset(vars(self))

    @staticmethod
    def prepare_task(args: Args) -> Task:
        """The task, when a subclass defines it this way instead of in the config."""
        raise NotImplementedError("prepare_task(args) is not defined in this experiment")

    @staticmethod
    def prepare_model(args: Args) -> nn.Module:
        """The model, when a subclass defines it this way; the framework moves it to the device."""
        raise NotImplementedError("prepare_model(args) is not defined in this experiment")

    def build_task(self, assembly: Assembly) -> Task:
        """The task: given, prepared, or what the section ``task`` describes."""
        task: Task = build_parts.build_part(assembly, "task", self._find_prepare("task"))
        return task

    def build_data(self, assembly: Assembly, task: Task) -> None:
        """Give the task the loaders that the section ``data`` describes."""
        build_parts.build_data(assembly, task)

    def build_model(self, assembly: Assembly) -> nn.Module:
        """The model: given, prepared, or what the section ``model`` describes."""

        def build() -> nn.Module:
            model: nn.Module = build_parts.build_part(
                assembly, "model", self._find_prepare("model")
            )
            return model

        has_own_placement = type(self).place_model is not Experiment.place_model
        return build() if has_own_placement else build_without_values(build, assembly)

    def place_model(self, assembly: Assembly, model: nn.Module) -> nn.Module:
        """The model in its number format, with its initial weights, on the run's device."""
        return build_parts.place_model(assembly, model)

    def build_metrics(self, assembly: Assembly) -> dict[str, Metric]:
        """The metric objects of the section ``metrics``, by name."""
        return build_parts.build_metrics(assembly)

    def build_optimizer(
        self, assembly: Assembly, model: nn.Module
    ) -> tuple[Optimizer, AnySchedule | None]:
        """The optimizer of ``optim`` and the schedule of ``schedule``; only when training."""
        return optimizer.build_optimizer(assembly, model)

    def build_hooks(self, assembly: Assembly) -> list[object]:
        """The hooks of the section ``hooks``, and those given as objects."""
        return build_parts.build_hooks(assembly)

    def register(self, *hooks: object) -> None:
        """Add hooks; a function receives the run at ``setup``, where it can change everything."""
        for hook in hooks:
            check_given_part("hooks", hook)
        given = self.inputs.given
        self.inputs = self.inputs.with_given(replace(given, hooks=(*given.hooks, *hooks)))

    def register_cache(self, caches: Mapping[str, Any] | None = None, /, **more: object) -> None:
        """Add values that go into every checkpoint, such as ``mean=0.5``.

        They are ``run.caches``, also after a resume, in ``test`` and in ``predict``.
        """
        given = self.inputs.given
        merged = {**given.caches, **(caches or {}), **more}
        self.inputs = self.inputs.with_given(replace(given, caches=merged))

    def check(self, runner: str | None = None) -> CheckReport:
        """Every mistake of the config at once, and the config with all defaults."""
        return check_inputs(self.inputs, runner).report

    def run(self, runner: str | None = None, *, raise_errors: bool | None = None) -> RunResult:
        """Check, build and run with the config's runner, or with another one.

        A run that fails is recorded and described on standard error, then its error is raised.
        With ``raise_errors=False``, here or as a choice, the result describes it instead.
        """
        __tracebackhide__ = True
        return run_experiment(self, self._describe_inputs(), runner, raise_errors=raise_errors)

    def fit(self, *, epochs: int | None = None, raise_errors: bool | None = None) -> RunResult:
        """Train, for ``epochs`` if given and for ``train.for`` otherwise.

        A runner of the user's own replaces the training; with ``test=True`` or ``--test`` the
        test data is evaluated instead. Errors are raised as by ``run``.
        """
        __tracebackhide__ = True
        inputs = self._describe_inputs()
        if epochs is not None:
            inputs = inputs.with_choices({"epochs": epochs})
        runner = None if inputs.is_test or _has_own_runner(inputs) else "train"
        return run_experiment(self, inputs, runner, raise_errors=raise_errors)

    def test(self, *, raise_errors: bool | None = None) -> RunResult:
        """Evaluate the test data. Errors are raised as by ``run``."""
        __tracebackhide__ = True
        return self.run("test", raise_errors=raise_errors)

    def predict(self, *, raise_errors: bool | None = None) -> RunResult:
        """Collect the outputs for the data to predict, as the result's ``value``.

        Errors are raised as by ``run``.
        """
        __tracebackhide__ = True
        return self.run("predict", raise_errors=raise_errors)

    def _describe_inputs(self) -> ExperimentInputs:
        """The inputs, including whether another process could create the same experiment."""
        kind, known = self.inputs.kind, {*self._known_attributes, "_known_attributes"}
        own = sorted(name for name in vars(self) if name not in known)
        if kind is None or self._is_named or not own:
            return self.inputs
        kind = kind.with_obstacle(f"the object has attributes that no config has: {', '.join(own)}")
        return replace(self.inputs, kind=kind)

    def _find_prepare(self, section: str) -> Callable[[Args], Any] | None:
        name = f"prepare_{section}"
        return getattr(type(self), name) if name in self.inputs.given.overridden else None


def load_experiment(
    source: object, *, overrides: Sequence[str] = (), choices: Choices | None = None
) -> Experiment:
    """The experiment of a config, made with the class that its key ``experiment`` names.

    Raises:
        ConfigError: The class cannot be imported, or is not a subclass of ``Experiment``.
    """
    inputs = load_inputs(source, overrides, choices or {}, {})
    node = inputs.config.root.get("experiment")
    if not isinstance(node.value, str):
        return Experiment(inputs)
    checked = inputs.checked
    registry = (
        checked.registry
        if checked is not None
        else build_registry(inputs.config, user_dir=inputs.user_dir, project=inputs.project)
    )
    if "." not in node.value:
        what = f"{node.value!r} is not a dotted path"
        raise ConfigError(Problem("experiment", what, node.place, "write package.module.Class"))
    factory = registry.find("experiment", node.value, node.place, key="experiment")
    try:
        kind = registry.load(factory)
    except EpochalError:
        raise
    except (Exception, SystemExit) as error:  # a script may read its own command line
        what = f"{factory.dotted} cannot be imported: {type(error).__name__}: {error}"
        raise ConfigError(Problem("experiment", what, node.place)) from error
    if not (isinstance(kind, type) and issubclass(kind, Experiment)):
        what = f"{factory.dotted} is not a subclass of epochal.Experiment"
        raise ConfigError(Problem("experiment", what, node.place))
    try:
        inspect.signature(kind).bind(inputs)
    except TypeError as error:
        what = f"{factory.dotted} cannot be created from a config alone: {error}"
        hint = "let its __init__ take the config first, and give all others a default"
        raise ConfigError(Problem("experiment", what, node.place, hint)) from error
    return kind(inputs)


def _refuse_named_class(inputs: ExperimentInputs) -> None:
    """Refuse a config that names a class, given to ``Experiment`` itself."""
    node = inputs.config.root.get("experiment")
    if node.value is not None:
        name = str(node.value).rpartition(".")[2]
        what = f"the config names {node.value!r}, but this is epochal.Experiment itself"
        hint = f"call {name}(...) instead, or ep.run(...), which does"
        raise ConfigError(Problem("experiment", what, node.place, hint))


def _check_methods(kind: type[Experiment]) -> None:
    """Refuse methods that are never called, because their names are misspelt."""
    known = [name for name in vars(Experiment) if not name.startswith("_")]
    own = {name for base in kind.__mro__[:-1] for name in vars(base)} - {*vars(Experiment)}
    for name in sorted(name for name in own if not name.startswith("_")):
        close = misspelling_of(name, known) if callable(getattr(kind, name)) else None
        if close is not None:
            what = f"{kind.__name__} has a method {name!r}, which nothing calls"
            hint = f"did you mean {close!r}? a leading underscore marks it as your own"
            raise ConfigError(Problem(name, what, hint=hint))


def _has_own_runner(inputs: ExperimentInputs) -> bool:
    node = inputs.config.root.find("runner")
    named = None if node is None else node.mapping.get("type", node).value
    return named not in (None, "train", "test", "predict")
