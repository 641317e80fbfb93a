"""The command line of a user's script, merged with its config file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast, final

from typing_extensions import override

from epochal.check import SECTIONS
from epochal.config import Config, Node, from_plain, load
from epochal.errors import ConfigError, EpochalError, Place, Problem, suggest
from epochal.experiment.config.choices import (
    Choices,
    add_choices,
    add_resume_choices,
    read_choices,
    to_override,
    to_overrides,
)
from epochal.text.error_output import print_error

if TYPE_CHECKING:
    from collections.abc import Collection

Extend = Callable[[argparse.ArgumentParser], argparse.ArgumentParser | None]
_MISSING = object()
Value = Any  # values of a config have no narrower type


@final
class Args(argparse.Namespace):
    """Config values with attribute access: ``args.optim.lr``; a misspelt name is an error."""

    @override
    def __getattr__(self, name: str) -> Value:
        if name.startswith("_"):
            raise AttributeError(name)
        own = vars(self).get("extra")
        extra = vars(own) if isinstance(own, Args) else {}
        if name in extra:
            return extra[name]
        origin = vars(self).get("_origin")
        if isinstance(origin, ArgsOrigin) and name in ("test", "ckp_file"):
            return origin.is_test if name == "test" else origin.choices.get("resume")
        known = [key for key in (*vars(self), *extra) if not key.startswith("_")]
        hint = suggest(name, known)
        path = vars(self).get("_path", "args")
        raise AttributeError(f"{path} has no {name!r}" + (f"; {hint}" if hint else ""))

    @override
    def __repr__(self) -> str:
        shown = (f"{key}={value!r}" for key, value in vars(self).items() if key[:1] != "_")
        return f"Args({', '.join(shown)})"

    def to_plain(self) -> dict[str, Value]:
        """The same values as ordinary dicts."""
        return {
            key: value.to_plain() if isinstance(value, Args) else value
            for key, value in vars(self).items()
            if not key.startswith("_")
        }


def to_args(values: Mapping[str, Any], path: str = "args") -> Args:
    """Nested mappings as nested ``Args``; ``path`` is what messages call them."""
    args = Args(
        **{
            str(key): to_args(value, f"{path}.{key}") if isinstance(value, Mapping) else value
            for key, value in values.items()
        }
    )
    args._path = path
    return args


@final
@dataclass(frozen=True)
class ArgsOrigin:
    """The result of ``parse_args``, so that an experiment gets the same config."""

    path: Path
    overrides: tuple[str, ...]
    choices: Choices
    is_test: bool
    own: ScriptOptions
    values: Mapping[str, Any]
    """What ``args`` held then; the difference shows what the script has changed since."""

    config: Config | None
    """As it was loaded; None if values have changed since."""

    def with_changes_from(self, args: Args) -> ArgsOrigin:
        """The same origin with the values that the script has set in ``args`` since."""
        found = dict(_changes(self.values, args.to_plain()))
        is_test = bool(found.pop("test", self.is_test))
        changes = {config_key(key): value for key, value in found.items()}
        if not changes:
            return replace(self, is_test=is_test)
        kept = [one for one in self.overrides if one.partition("=")[0].strip() not in changes]
        added = [to_override(key, value) for key, value in changes.items()]
        return replace(
            self,
            overrides=(*kept, *added),
            is_test=is_test,
            own=self.own.without(changes),
            values=args.to_plain(),
            config=None,
        )


def _changes(
    before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Dotted keys whose values differ, with the new ones."""
    for key, value in after.items():
        old = before.get(key, _MISSING)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            yield from _changes(old, value, f"{prefix}{key}.")
        elif value is not old and (type(value) is not type(old) or value != old):
            yield f"{prefix}{key}", value


def _copy(value: Value) -> Value:
    """New dicts and lists with the same contents."""
    if isinstance(value, dict):
        return {key: _copy(child) for key, child in value.items()}
    return [_copy(child) for child in value] if isinstance(value, list) else value


def find_args_origin(args: Args) -> ArgsOrigin | None:
    """Where ``args`` came from, if that was ``parse_args``."""
    return cast("ArgsOrigin | None", vars(args).get("_origin"))


def parse_args(
    argv: Sequence[str] | None = None,
    *,
    extend: Extend | None = None,
    updateParser: Extend | None = None,  # noqa: N803 - the name that users of earlier systems know
) -> Args:
    """Config file and command line as one object with attribute access.

    Options that were typed override the file. Defaults of options that were not typed apply only
    where the file sets nothing. Unknown ``--a.b value`` and ``a.b=value`` change config keys. A
    user's mistake ends the program with a message, not a traceback.

    Args:
        argv: The words; those of this process by default.
        extend: Receives the parser and adds the script's own options.
        updateParser: The same under an older name.
    """
    try:
        return _parse(sys.argv[1:] if argv is None else list(argv), extend or updateParser)
    except EpochalError as error:
        print_error(str(error))
        raise SystemExit(error.exit_code) from None


def _parse(argv: list[str], extend: Extend | None) -> Args:
    parser = _standard_parser()
    standard = {action.dest for action in parser._actions}
    if extend is not None:
        parser = extend(parser) or parser
    parsed, rest = parser.parse_known_args(argv)
    _check_legacy_ddp(parsed)
    own = read_script_options(parser, argv, [a for a in parser._actions if a.dest not in standard])
    overrides = _parse_dotted(rest) + own.to_overrides()
    choices = read_choices(parsed)
    config = own.fill(
        load(
            parsed.config,
            variant=choices.get("variant"),
            overrides=to_overrides(choices, overrides),
            allow_python=choices.get("allow_python", False),
        )
    )
    if config.problems:
        raise ConfigError(*config.problems)
    args = to_args({"extra": {}} | config.root.to_plain())
    own.attach(args, config.root)
    values = _copy(args.to_plain())
    args._origin = ArgsOrigin(
        parsed.config, tuple(overrides), choices, parsed.test, own, values, config
    )
    return args


def _standard_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--test", action="store_true", help="only evaluate, do not train")
    parser.add_argument("--local-rank", "--local_rank", help=argparse.SUPPRESS)  # set by launchers
    for name in ("--ddp", "--ddp-detect"):  # accepted from older scripts; the launcher decides now
        parser.add_argument(name, nargs="?", const="yes", default="no", help=argparse.SUPPRESS)
    add_choices(parser)
    add_resume_choices(parser)
    return parser


_BOOLEAN_WORDS = {
    **dict.fromkeys(("yes", "true", "t", "y", "1"), True),
    **dict.fromkeys(("no", "false", "f", "n", "0"), False),
}


def _check_legacy_ddp(parsed: argparse.Namespace) -> None:
    """Refuse values of ``--ddp`` other than yes and no; otherwise the option has no effect."""
    for option in ("ddp", "ddp_detect"):
        word, name = str(getattr(parsed, option)), f"--{option.replace('_', '-')}"
        if word.lower() not in _BOOLEAN_WORDS:
            raise ConfigError(
                Problem(name, f"expected yes or no, got {word!r}", hint=f"write {name} no")
            )


def _parse_dotted(words: list[str]) -> list[str]:
    """``--a.b value``, ``--a.b=value`` and ``a.b=value`` as overrides."""
    overrides, rest = [], iter(words)
    for word in rest:
        key = word.removeprefix("--")
        if "=" in key:
            overrides.append(key)
        elif word.startswith("--"):
            value = next(rest, None)
            if value is None or value.startswith("--"):
                hint = f"write --{key}=VALUE"
                raise ConfigError(Problem(word, "an option without a value", hint=hint))
            overrides.append(f"{key}={value}")
        else:
            raise ConfigError(Problem(word, "not an option and not a key=value", hint="see --help"))
    return overrides


@final
@dataclass(frozen=True)
class ScriptOptions:
    """The values of the script's own options, by attribute name."""

    typed: Mapping[str, Any] = field(default_factory=dict)
    """Those that were typed, as the parser converted them."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of those that were not typed."""

    def to_overrides(self) -> list[str]:
        """The typed options as changes to the config."""
        return [to_override(config_key(name), value) for name, value in self.typed.items()]

    def without(self, keys: Collection[str]) -> ScriptOptions:
        """The same options without those of these config keys."""
        return ScriptOptions(
            {name: value for name, value in self.typed.items() if config_key(name) not in keys},
            {name: value for name, value in self.defaults.items() if config_key(name) not in keys},
        )

    def fill(self, config: Config) -> Config:
        """The config with the defaults where it sets nothing."""
        root = config.root
        for name, value in self.defaults.items():
            key = config_key(name)
            if root.find(key) is None and (value is not None or key.startswith("extra.")):
                place = Place(f"option --{name.replace('_', '-')}")
                root = _put(root, key.split("."), from_plain(value, place=place, layer="default"))
        return replace(config, root=root)

    def attach(self, args: argparse.Namespace, root: Node) -> None:
        """Set the options in ``args`` under their own names, with the parser's types."""
        for name, value in {**self.defaults, **self.typed}.items():
            node = root.find(config_key(name))
            if node is None or (
                config_key(name) != name and (name in self.typed or node.layer == "default")
            ):
                setattr(args, name, value)


def read_script_options(
    parser: argparse.ArgumentParser, argv: Sequence[str], actions: Sequence[argparse.Action]
) -> ScriptOptions:
    """The values of ``actions``, split into typed ones and defaults."""
    names = [a.dest for a in actions if a.default is not argparse.SUPPRESS]
    # argparse does not overwrite an existing attribute with a default: this shows what was typed.
    marked = argparse.Namespace(**dict.fromkeys((a.dest for a in actions), _MISSING))
    found, _ = parser.parse_known_args(argv, marked)
    typed = {a.dest: getattr(found, a.dest) for a in actions}
    typed = {name: value for name, value in typed.items() if value is not _MISSING}
    usual, _ = parser.parse_known_args(argv)
    defaults = {name: getattr(usual, name) for name in names if name not in typed}
    return ScriptOptions(typed, defaults)


def config_key(name: str) -> str:
    """The config key of a script's own option: a known key, or one below ``extra``."""
    return name if name.partition(".")[0] in SECTIONS else f"extra.{name}"


def _put(node: Node, path: Sequence[str], value: Node) -> Node:
    """The tree with ``value`` at ``path``; an existing plain value on the way stays."""
    if not path:
        return value
    if not node.is_mapping:
        return node
    child = node.mapping.get(path[0], Node(MappingProxyType({}), value.place, layer=value.layer))
    entries = {**node.mapping, path[0]: _put(child, path[1:], value)}
    return replace(node, value=MappingProxyType(entries))
