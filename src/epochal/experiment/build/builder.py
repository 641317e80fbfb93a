"""Builds components from a checked config; holds the config and the parts built so far."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from epochal.check import (
    SECTIONS,
    Spec,
    build_arguments,
    nested_kind,
    read_spec,
    section_signature,
)
from epochal.config import Node, from_plain
from epochal.distributed.world import SingleProcess
from epochal.engine.interfaces.every import Every
from epochal.engine.measure.clock import PhaseTimer
from epochal.errors import ConfigError, EpochalError, Place, Problem, suggest
from epochal.experiment.record.open_record import to_recordable
from epochal.registry import Registry, find_project
from epochal.registry.component_names import ANY_KIND
from epochal.text.interrupts import deferring_interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from epochal.distributed.world import World
    from epochal.engine import Task
    from epochal.engine.loss.loss import Loss
    from epochal.experiment.config.inputs import GivenParts
    from epochal.experiment.config.script_arguments import Args

Component = Any  # an object of the user's class

_BOUND = ("collate", "pipe", "source")  # a function of this kind is a part itself


@final
class Builder:
    """Turns specs into objects; the registry finds and imports what they name."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._makers = {"every": Every.parse, "callable": self._load_named}
        self.observed: dict[str, object] = {}
        """The arguments that each constructor received, by config key."""

    def read(self, node: Node, section: str, path: str = "", *, kind: str = "") -> Spec:
        """The spec of a node, split into the component's keys and those of its section."""
        return read_spec(node, self.registry, section=section, path=path, kind=kind)

    def build(self, spec: Spec, **supplied: object) -> Component:
        """The object that a spec describes.

        ``supplied`` are arguments that no config has, such as the optimizer of a schedule;
        nested specs of the same kind get them too.
        """
        factory, first, named = self._prepare(spec, supplied)
        try:
            return factory(*first, **named)
        except EpochalError:
            raise
        except Exception as error:
            error.add_note(f"while building {spec.path} ({spec.factory.dotted})")
            raise

    def bind(self, spec: Spec) -> Component:
        """The object that a spec describes; a function itself, with its options."""
        if isinstance(self.registry.load(spec.factory), type):
            return self.build(spec)
        factory, first, named = self._prepare(spec, {}, is_partial=True)
        return partial(factory, *first, **named)

    def _prepare(
        self, spec: Spec, supplied: Mapping[str, object], *, is_partial: bool = False
    ) -> tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]:
        """The factory of a spec, and its positional and keyword arguments."""

        def build_nested(node: Node, path: str) -> object:
            kind = nested_kind(path)
            nested = self.read(node, "", path, kind=kind)
            if kind in _BOUND:
                return self.bind(nested)
            is_alike = nested.factory.kind == spec.factory.kind
            return self.build(nested, **(supplied if is_alike else {}))

        with deferring_interrupts():
            factory = self.registry.load(spec.factory)
        made = build_arguments(
            spec.arguments, spec.signature, makers=self._makers, build=build_nested, path=spec.path
        )
        first, named = made.positional, {**supplied, **made.keyword}
        if first:  # supplied arguments come before those of the config
            first, named = (*supplied.values(), *first), made.keyword
        self._observe(spec, factory, supplied, first, named, is_partial=is_partial)
        return factory, first, named

    def options(self, spec: Spec) -> dict[str, Any]:
        """The values of the section's own keys, converted to their declared types."""
        return build_arguments(
            spec.options,
            spec.section_signature,
            makers=self._makers,
            build=self._build_option,
            path=spec.path,
        ).keyword

    def read_options(self, section: str, node: Node, *, path: str = "") -> dict[str, Any]:
        """The values of a section that has only options, by argument name."""
        signature = section_signature(SECTIONS[section], self.registry.finder)
        return build_arguments(
            node.mapping,
            signature,
            makers=self._makers,
            build=self._build_option,
            path=path or section,
        ).keyword

    def _build_option(self, node: Node, path: str) -> object:
        """What a spec among the options of a section describes; a sampler is built with data."""
        kind = nested_kind(path)
        spec = self.read(node, "", path, kind=kind)
        if kind != "sampler":
            return self.bind(spec) if kind == "collate" else self.build(spec)
        factory, first, named = self._prepare(spec, {}, is_partial=True)
        return partial(factory, *first, **named)

    def _load_named(self, name: object) -> object:
        """The function or class itself, for parameters that expect a callable."""
        return self.registry.load(self.registry.find(ANY_KIND, str(name)))

    def _observe(
        self,
        spec: Spec,
        factory: Callable[..., Any],
        supplied: Mapping[str, object],
        first: Sequence[object],
        named: Mapping[str, object],
        *,
        is_partial: bool,
    ) -> None:
        received = {name: value for name, value in named.items() if name not in supplied}
        try:
            signature = inspect.signature(factory)
            bind = signature.bind_partial if is_partial else signature.bind
            bound = bind(*first, **named)
        except ValueError:  # a factory written in C has no signature
            pass
        except TypeError as error:
            place = next(iter(spec.arguments.values())).place if spec.arguments else None
            raise ConfigError(
                Problem(
                    spec.path,
                    f"{spec.factory.dotted} does not accept these arguments: {error}",
                    place,
                )
            ) from error
        else:
            bound.apply_defaults()
            received = {k: v for k, v in bound.arguments.items() if k not in supplied}
        shown = {name: to_recordable(value) for name, value in received.items()}
        shown |= _environment_placeholders(spec)
        self.observed[spec.path] = {"type": spec.factory.dotted, "arguments": shown}


def _environment_placeholders(spec: Spec) -> dict[str, object]:
    """Placeholders for arguments from the environment, by argument name."""
    hidden = {}
    for key, node in spec.arguments.items():
        if node.to_public() != node.to_plain():
            parameter = spec.signature.get(key)
            hidden[key if parameter is None else parameter.argument] = node.to_public()
    return hidden


def build(
    section: Mapping[str, object] | Node, *, kind: str = "", project_dir: Path | None = None
) -> Component:
    """The component that a section such as ``{"type": "torch.nn.Linear", ...}`` describes.

    Args:
        section: ``type`` and arguments; nested specs are built too.
        kind: The config section whose names apply, such as ``optim`` or ``hooks``; any by default.
        project_dir: The folder of the project's code; the current folder by default.
    """
    known = [name for name in SECTIONS if SECTIONS[name].kind]
    if kind and kind not in known:
        what = f"there is no section {kind!r} with components"
        raise ConfigError(Problem("kind", what, hint=suggest(kind, known)))
    node = section if isinstance(section, Node) else from_plain(section, place=Place("build"))
    builder = Builder(Registry(find_project(project_dir or Path.cwd())))
    return builder.build(builder.read(node, kind, kind or "component"))


@final
@dataclass(frozen=True, kw_only=True)
class Assembly:
    """The checked config, the builder of components, and the given parts."""

    config: Node
    """The expanded config."""

    args: Args
    """The same with attribute access: ``assembly.args.optim.lr``."""

    builder: Builder
    device: torch.device
    given: GivenParts
    task: Task | None = None
    """None until it is built."""

    loss: Loss | None = None
    """None until it is built; its parameters are trained too."""

    world: World = field(default_factory=SingleProcess)
    """The processes of the run."""

    is_debug: bool = False
    is_resumed: bool = False
    """Whether the weights come from a checkpoint and not from ``init_from``."""

    written: Node | None = None
    """The config without defaults, if there is one."""

    times: PhaseTimer = field(default_factory=PhaseTimer)
    """Measures how long each phase of the run takes."""

    num_defaults: int = 0
    source: str = ""
    """The config file, if there is one."""

    variant: str | None = None

    def spec(self, section: str) -> Spec | None:
        """The spec of a section, if the config has that section."""
        node = self.config.find(section)
        return None if node is None else self.builder.read(node, section)

    def options(self, section: str) -> dict[str, Any]:
        """The values of a section that has only options, by argument name."""
        return self.builder.read_options(section, self.config.mapping[section])

    @property
    def seed(self) -> int:
        """The seed of the run."""
        seed: int = self.args.seed
        return seed
