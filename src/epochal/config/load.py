"""Loading a config: read, inherit, apply variant and overrides, interpolate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal.config.inherit import Inheritance
from epochal.config.interpolate import interpolate
from epochal.config.override import (
    SWEEP,
    apply_overrides,
    apply_trial,
    apply_variant,
    split_variants,
)
from epochal.config.problems import MAX_DEPTH, MAX_NODES, Findings, measure
from epochal.config.source_file import (
    EMPTY,
    SUFFIXES,
    FrozenSource,
    SourceFile,
    as_config,
    read_document,
    read_source,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from epochal.config.node import Node
    from epochal.errors import Problem


@final
@dataclass(frozen=True, kw_only=True)
class Config:
    """A loaded config, and every problem that was found in it."""

    root: Node
    """The composed and interpolated tree; without ``$BASE``, ``variants`` and ``sweep``."""

    sources: tuple[SourceFile, ...] = ()
    """The files it was made of, the main one first."""

    format: str = "yaml"
    """``yaml``, ``toml`` or ``json``: how the main file was written."""

    path: Path | None = None
    """The main file, if there is one."""

    variant: str | None = None
    overrides: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Every mistake found so far; the config must not be used while there are any."""

    broken: frozenset[str] = frozenset()
    """Dotted prefixes whose values are unknown because of a problem; "" is everything."""

    variants: Mapping[str, Node] = field(default_factory=dict)
    """The variants by name, as written."""

    sweep: Node | None = None
    """The ``sweep`` section, as written."""


def load(
    source: object,
    *,
    variant: str | None = None,
    overrides: Sequence[str] = (),
    trial: Mapping[str, object] | None = None,
    allow_python: bool = False,
) -> Config:
    """The config of a file or object, with a variant and overrides applied.

    Mistakes in the content are collected in ``problems``, not raised.

    Args:
        source: A path of a .yaml, .yml, .toml, .json or .py file, a ``FrozenSource``, a mapping,
            an argparse namespace or an OmegaConf object.
        variant: The name of the variant to apply.
        overrides: Changes such as ``optim.lr=1e-3``.
        trial: The values by dotted key that a sweep sets; overrides win over them.
        allow_python: Accept .py configs, whose code is executed.

    Raises:
        MissingFileError: The file does not exist.
        ConfigError: The file cannot be read at all: binary, empty, too big or too deep.
    """
    return _finish(*_compose(source, allow_python), variant, overrides, trial or {})


def load_variants(
    source: object, *, overrides: Sequence[str] = (), allow_python: bool = False
) -> Iterator[Config]:
    """The config without a variant, then with each of its variants; files are read once.

    Takes what ``load`` takes, and raises what it raises.
    """
    composed, findings = _compose(source, allow_python)
    for variant in (None, *composed.variants):
        yield _finish(composed, findings, variant, overrides, {})


def _compose(source: object, allow_python: bool) -> tuple[Config, Findings]:
    """What all variants of a config share: its files, read and merged, but not interpolated."""
    findings = Findings()
    inheritance = Inheritance(allow_python=allow_python)
    if isinstance(source, FrozenSource):
        inheritance.read = source.read
    node, main = _read(source, findings, allow_python)
    path = main.path if main else None
    root, variants = split_variants(inheritance.compose(node, path, findings), findings)
    sources = (main, *inheritance.sources) if main else tuple(inheritance.sources)
    kind = SUFFIXES[path.suffix.lower()] if path else "yaml"
    format = "yaml" if kind == "py" else kind
    config = Config(root=root, sources=sources, format=format, path=path, variants=variants)
    return config, findings


def _finish(
    composed: Config,
    findings: Findings,
    variant: str | None,
    overrides: Sequence[str],
    trial: Mapping[str, object],
) -> Config:
    findings, root = findings.copy(), composed.root
    if variant is not None:
        root = apply_variant(root, composed.variants, variant, findings)
    root = apply_trial(root, trial, findings)
    root = _within_limits(apply_overrides(root, overrides, findings), findings)
    return replace(
        composed,
        sweep=root.mapping.get(SWEEP),
        root=interpolate(root.without(SWEEP), findings),
        variant=variant,
        overrides=tuple(overrides),
        problems=tuple(dict.fromkeys(findings.problems)),
        broken=frozenset(findings.broken),
    )


def _within_limits(root: Node, findings: Findings) -> Node:
    count, depth = measure(root)
    if count <= MAX_NODES and depth <= MAX_DEPTH:
        return root
    what = "the variant and the overrides make it too big or too deep"
    findings.report_file("config", what, hint=f"at most {MAX_NODES:,} values, {MAX_DEPTH} levels")
    return EMPTY


def _read(source: object, findings: Findings, allow_python: bool) -> tuple[Node, SourceFile | None]:
    main: SourceFile | None = None
    if isinstance(source, FrozenSource):
        main = source.read(source.path)
    elif isinstance(source, str | Path):
        main = read_source(Path(source))
    if main is not None:
        return read_document(main, findings, layer="file", allow_python=allow_python), main
    from epochal.config.read_python import read_object

    return as_config(read_object(source, findings), findings), None
