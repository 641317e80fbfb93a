"""Choices for one run, which belong to the command line and not to the config file."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

from epochal import durable
from epochal.errors import ConfigError, Problem, suggest
from epochal.text.escape import decode_typed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from epochal.launch.jobs.frozen_job import FrozenCode

FAST_BATCHES = 3

logger = logging.getLogger(__name__)

_TYPES: Mapping[str, Callable[[str], Any]] = {
    "N": int,
    "LR": float,
    "SHARE": float,
    "DIR": Path,
    "FILE": Path,
}
"""The type of an option by the placeholder of its value; others are texts."""

_OPTIONS = {
    "--variant NAMES": "a variant of the config, several as `wide,deep`, or `all`; "
    "`base,all` also runs the config without a variant",
    "--device D": "cpu, cuda, cuda:1 or just 1, ... (default: the best one); several as 0,1,2,3",
    "--gpus N": "number of accelerators, each with its own process; 0 is the CPU",
    "--nproc N": "number of processes that share each batch (default: one for each device)",
    "--nnodes N|MIN:MAX": "number of machines that share each batch; run the same command on each "
    "of them. With 1:3, machines may leave and join",
    "--rdzv-endpoint "
    "HOST:PORT": "with --nnodes: where machines connect, a free port of one of them",
    "--name TAG": "tag of the run, instead of that in the config",
    "--desc TEXT": "description, written to the README of the record",
    "--epochs N": "train for N epochs, instead of train.for",
    "--debug": "one process, all log messages, every loss checked; pdb works",
    "--debug-rank N": "with several processes: pdb works in this one, and the others wait for it",
    "--fast": "one epoch of three batches, and three of each other split",
    "--no-file": "write no record",
    "--user-dir DIR": "folder with the project's code",
    "--allow-python": "accept .py configs; their code is executed",
}


class TrialFacts(TypedDict):
    """The trial of a sweep that a run belongs to."""

    sweep: str
    """The id of the sweep."""

    number: int
    repeat: int
    """Counted from 0; each repeat has another seed."""

    values: dict[str, Any]
    """The values of the trial, by dotted key of the config."""

    seal: NotRequired[str]
    """Proves that this user's sweep proposed them."""


class Choices(TypedDict, total=False):
    """What can be chosen for a single run; the file does not change."""

    variant: str | None
    """One of the file's variants; ``all`` or ``wide,deep`` runs several in turn, and ``base``
    stands for none: ``base,all``."""

    device: str | int | list[int] | list[str] | None
    """Such as ``cpu``, ``cuda:1``, or the number of an accelerator; by default the first
    accelerator, else the CPU."""

    gpus: int | None
    """How many accelerators to use, each with its own process: 0 means the CPU."""

    nproc: int | None
    """How many processes share each batch; by default one for each device."""

    nnodes: int | str | None
    """How many machines share each batch, each with ``nproc`` processes; ``1:3`` is 1 to 3, which
    may leave and join."""

    rdzv_endpoint: str | None
    """Where several machines connect, as ``host:port``: a free port of one of them."""

    restarts: int
    """How often a run of several processes is started again in a row without progress, after one
    of them was killed; 10 by default."""

    can_fork: bool
    """Whether this process can be forked, since it has done nothing yet."""

    name: str | None
    """The run's tag, instead of the one in the file."""

    desc: str | None
    """The purpose of this run: the body of its README."""

    epochs: int | None
    """How long to train, instead of ``train.for``."""

    debug: bool
    """One process, no loader workers, blocking kernels, all log lines; ``breakpoint()`` works."""

    debug_rank: int | None
    """The same for one of several processes; the others wait while it is in a debugger."""

    fast: bool
    """One epoch of three batches, and three of each other split, as a quick test."""

    no_file: bool
    """Write no record and no other file."""

    user_dir: Path | str | None
    """The folder with the project's code."""

    allow_python: bool
    """Accept a ``.py`` config, which runs its code."""

    resume: Path | str | None
    """The run to resume: its folder, its id or a part of it, ``last``, or the folder of one of
    its checkpoints; ``auto`` is the newest unfinished run of the same config, if there is one."""

    resume_from: str | None
    """The checkpoint to resume from: ``last``, the newest, by default; ``best``; or a name."""

    allow_changed: bool
    """Resume even if config, code or data have changed."""

    begun: float | None
    """When the program was started, by ``time.perf_counter``; by default now."""

    evaluated: str | None
    """Which weights an evaluation of a run uses, for its summary."""

    frozen: FrozenCode | None
    """The code of the job that this process runs, instead of that of the project."""

    trial: TrialFacts | None
    """The trial of a sweep that this run is."""

    raise_errors: bool
    """Raise the error that ended a run; False describes it in the result instead."""


def check_choices(choices: Mapping[str, object], *, sections: Iterable[str] = ()) -> None:
    """Refuse unknown choices, such as misspelt ones, with a suggestion for each one."""
    known = Choices.__annotations__
    problems = [
        Problem(
            name,
            "is a section of the config, not a choice for a run",
            hint=f"write overrides=['{name}...=...'], or ep.Experiment(config, {name}=...)",
        )
        if name in sections
        else Problem(name, f"there is no choice {name!r} for a run", hint=suggest(name, known))
        for name in choices
        if name not in known
    ]
    if problems:
        raise ConfigError(*problems)


def check_overrides(overrides: object) -> None:
    """Refuse overrides from Python that are one text, or a mapping, instead of a list."""
    if isinstance(overrides, str):
        what, texts = f"is the text {overrides!r}", [overrides]
    elif isinstance(overrides, Mapping):
        what = "is a mapping"
        texts = [to_override(key, value) for key, value in overrides.items()]
    else:
        return
    raise ConfigError(
        Problem("overrides", f"{what}, not a list of texts", hint=f"overrides={texts}")
    )


def to_overrides(choices: Choices, typed: Sequence[str]) -> list[str]:
    """The choices that change config keys, as overrides, before those that were typed.

    Of several typed overrides of a key the last remains, which is logged.

    Raises:
        ConfigError: A choice and a typed override set the same key.
    """
    wanted: dict[str, object] = {}
    if choices.get("fast"):
        wanted |= {"train.limit_batches": FAST_BATCHES, "train.for": "1ep"}
    if (epochs := choices.get("epochs")) is not None:
        wanted["train.for"] = f"{epochs}ep"
    if (name := choices.get("name")) is not None:
        wanted["tag"] = name
    if (desc := choices.get("desc")) is not None:
        wanted["desc"] = desc
    if is_debugging(choices):
        wanted["log.level"] = "debug"
    keys = [override.partition("=")[0].strip() for override in typed]
    last = {key: index for index, key in enumerate(keys)}
    _refuse_conflicts(choices, wanted, {*last})
    for key in last:
        if keys.count(key) > 1:
            text = "%s is set %d times; the last one counts: %s"
            logger.warning(text, key, keys.count(key), typed[last[key]])
    kept = {key: value for key, value in wanted.items() if key not in last}
    overrides = [to_override(key, value) for key, value in kept.items()]
    return overrides + [typed[index] for index in sorted(last.values())]


def is_debugging(choices: Choices) -> bool:
    """Whether a debugger may be opened, in one of the processes at least."""
    return bool(choices.get("debug")) or choices.get("debug_rank") is not None


def to_override(key: str, value: object) -> str:
    """A change to a config as it would be typed."""
    return f"{key}={durable.encode_json(value).decode()}"


def _refuse_conflicts(choices: Choices, wanted: Mapping[str, object], typed: set[str]) -> None:
    options = {"train.for": "epochs", "tag": "name", "desc": "desc"}
    for key, option in options.items():
        if key in wanted and key in typed and choices.get(option) is not None:
            raise ConfigError(
                Problem(key, f"set twice: by --{option} and by {key}=...", hint="keep one of them")
            )


def add_options(
    parser: argparse._ActionsContainer, texts: Mapping[str, str], **defaults: object
) -> None:
    """Declare options such as ``--steps N`` with their help texts; flags have no placeholder."""
    for words, text in texts.items():
        name, _, metavar = words.partition(" ")
        if not metavar:
            parser.add_argument(name, action="store_true", help=text)
            continue
        default = defaults.get(name.strip("-").replace("-", "_"))
        kind = _TYPES.get(metavar, str)
        parser.add_argument(name, type=kind, default=default, metavar=metavar, help=text)


def add_choices(parser: argparse.ArgumentParser, *names: str) -> None:
    """Declare the options that belong to one run; with ``names`` only these."""
    chosen = {words: text for words, text in _OPTIONS.items() if words.split()[0] in names}
    add_options(parser, chosen if names else _OPTIONS)


def add_resume_choices(parser: argparse.ArgumentParser, *, has_run: bool = True) -> None:
    """Declare the options that resume a run, without the run itself if ``has_run`` is false."""
    if has_run:
        text = "resume this run; auto: the newest unfinished run of the same config"
        parser.add_argument("--resume", "--ckp", "--ckp-file", metavar="RUN", help=text)
    text = "checkpoint to resume from: `last` (default), `best`, or a name"
    parser.add_argument("--from", dest="resume_from", metavar="CHECKPOINT", help=text)
    add_options(parser, {"--allow-changed": "resume even if config, code or data have changed"})


def read_choices(parsed: argparse.Namespace) -> Choices:
    """The choices among parsed options."""
    names = Choices.__annotations__
    found = {name: value for name, value in vars(parsed).items() if name in names}
    for name in ("variant", "name", "desc"):
        if isinstance(found.get(name), str):
            found[name] = decode_typed(found[name])
    return cast("Choices", found)
