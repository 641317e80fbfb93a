"""The table of sections: every top-level key of a config, its shape, options and default.

A key of the section wins over an argument of the component with the same name: ``every`` of an
entry of ``hooks`` always sets when the hook acts, and its constructor never receives it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, final

from epochal.check.signatures.parameters import (
    MISSING,
    Absent,
    Parameter,
    Plain,
    Signature,
    read_literal,
)
from epochal.check.signatures.signature import definition_signature
from epochal.registry.module_finder import ModuleFinder, cached_by_finder
from epochal.registry.parsed_module import Variable

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
@dataclass(frozen=True, slots=True)
class Section:
    """One top-level key of a config."""

    name: str
    shape: str
    """``value``, ``free``, ``options``, ``spec``, ``specs`` (a list), ``terms`` (one, a list, or
    several by name), ``splits`` (of data) or ``stages``."""

    doc: str
    kind: str = ""
    """The kind of component that its specs name."""

    options: str = ""
    """The dataclass that declares the section's own keys."""

    members: str = ""
    """The dataclass of the keys of each spec, in a section that may have several by name."""

    keys: tuple[Parameter, ...] = ()
    """More of the section's own keys."""

    annotation: str = ""
    default: Plain | Absent = MISSING


def _key(name: str, annotation: str, default: Plain | Absent, doc: str) -> Parameter:
    return Parameter(name, annotation, default, doc, argument=name)


def _value(name: str, annotation: str, default: Plain | Absent, doc: str) -> Section:
    return Section(name, "value", doc, annotation=annotation, default=default)


def _options(name: str, doc: str, options: str) -> Section:
    return Section(name, "options", doc, options=options)


_OPTIONS = "epochal.engine.interfaces.options"
_MONITOR = (
    _key("metric", "str", MISSING, "Full name of the metric, such as val/acc or +val/acc."),
    _key("mode", "Literal['min', 'max'] | None", None, "Which way is better, if no sign is set."),
    _key(
        "min_delta",
        "Annotated[float, AtLeast(0)]",
        0.0,
        "By how much a value must be better to count.",
    ),
)
_INIT_FROM = (
    _key("path", "str", MISSING, "A file, or the folder of a checkpoint or of a run; or a URL."),
    _key("exclude", "list[str]", [], "Patterns of names that stay as built, such as head.*."),
    _key("strict", "bool", True, "Whether all other names must be in the file and in the model."),
    _key(
        "try_ema",
        "bool | Literal['required']",
        False,
        "Take averaged weights if there are any; required: fail without them.",
    ),
)
_DTYPE = _key(
    "dtype",
    "Literal['float32', 'float64']",
    "float32",
    "Number format of the weights and of the batches' floats.",
)
_SCHEDULE = (
    _key(
        "unit",
        "Literal['step', 'epoch', 'eval']",
        "step",
        "When the rate changes; eval is for schedulers of torch only.",
    ),
    _key(
        "warmup",
        "Annotated[int, AtLeast(0)] | Duration",
        0,
        "Length of a linear warm-up before the schedule, in steps (500, 500st) or epochs (1ep).",
    ),
    _key(
        "warmup_start",
        "Annotated[float, AtLeast(0), AtMost(1)]",
        0.01,
        "Factor of the schedule's first rate at the first step of the warm-up.",
    ),
)
_STAGE = (
    _key("name", "str | None", None, "Its name; stage1, stage2 and so on if null."),
    _key("for", "Duration | None", None, "How long it takes; the maximum if until is set."),
    _key(
        "until",
        "Condition | dict[str, int] | None",
        None,
        "What ends it: val/acc >= 0.9, or {plateau: 3}, values of the monitor without a new best.",
    ),
    _key("optim", "dict[str, Any] | str", {}, "Keys of optim; state: keep or reset."),
    _key("schedule", "dict[str, Any] | str | None", None, "A schedule for this stage only."),
    _key("loss", "dict[str, float]", {}, "Weights of terms of the loss, by name."),
    _key("freeze", "list[str]", [], "Patterns of parameters that are not trained from here on."),
    _key("unfreeze", "list[str]", [], "Patterns of parameters that are trained from here on."),
    _key("data", "dict[str, Any]", {}, "Other data, by split, as in the section data."),
    _key("batch_size", "Annotated[int, AtLeast(1)] | None", None, "Samples per training batch."),
    _key("task", "dict[str, Any]", {}, "Keyword arguments of the task's on_stage_start."),
)
_INPUTS = _key(
    "inputs",
    "dict[str, str] | None",
    None,
    "The source of each argument, such as {input: out.logits, target: batch.label}.",
)
_TERM = (
    _key("name", "str | None", None, "The name of its value; in a list the type, if null."),
    _key("weight", "float", 1.0, "Its share of the sum; with 0 it is not computed."),
    _INPUTS,
)
_METRIC = (
    _key("name", "str | None", None, "The name of its values; the name of the type if null."),
    _key("on", "tuple[str, ...] | None", None, "Splits it is computed on; val and test if null."),
    _INPUTS,
)
_OUTPUT = (
    _key("on", "tuple[str, ...] | None", None, "Splits it acts on; those of the stage if null."),
)
_NOTIFY = (
    _key(
        "kinds",
        "list[Literal['finished', 'failed', 'stalled', 'diverged', 'out_of_disk', 'lost', "
        "'gave_up', 'sweep_done']] | None",
        None,
        "The kinds of mail that are sent; all if null.",
    ),
)

_ALL = (
    _value("project", "str | None", None, "Groups the records of a project's runs."),
    _value("tag", "str | None", None, "Title of the run's record and name of its folder."),
    _value("desc", "str", "", "The purpose of this run: the body of the record's README."),
    _value("seed", "int", 0, "Seed of weights, data order and every random choice."),
    Section(
        "init_from",
        "value",
        "Weights to start from: a file, a checkpoint's folder or a run's; or a URL.",
        annotation="str | dict[str, Any] | None",
        default=None,
        keys=_INIT_FROM,
    ),
    _value(
        "ckp_file",
        "str | None",
        MISSING,
        "The run or checkpoint to resume, as --resume names it; a test takes its weights.",
    ),
    _value("env", "list[str]", [], "Environment variables that ${env:NAME} may read."),
    _value("imports", "list[str]", [], "Modules that register components, imported first."),
    _value(
        "experiment",
        "str | None",
        None,
        "The subclass of ep.Experiment that builds the parts: package.module.Class.",
    ),
    Section("extra", "free", "Your own values, available as run.config['extra'].", default={}),
    Section("runner", "spec", "What to do: train, test, predict or a class.", kind="runner"),
    Section("task", "spec", "What a batch means: loaders, forward, loss, metrics.", kind="task"),
    Section("model", "spec", "The network.", kind="model", keys=(_DTYPE,)),
    Section(
        "data",
        "splits",
        "Datasets by split: train, val, test, predict.",
        kind="data",
        options="epochal.data.loader:LoaderOptions",
    ),
    Section(
        "optim",
        "spec",
        "The optimizer and how gradients become an update.",
        kind="optimizer",
        options=f"{_OPTIONS}:OptimOptions",
        members="epochal.engine.optim.multi_optimizer:MemberOptions",
    ),
    Section("schedule", "spec", "How the learning rate changes.", kind="schedule", keys=_SCHEDULE),
    Section(
        "stages",
        "stages",
        "Parts of the training, one after the other, each with changes that apply from then on.",
        keys=_STAGE,
    ),
    Section("updater", "spec", "What one step does; the usual step by default.", kind="updater"),
    Section(
        "average",
        "spec",
        "Averaged weights beside the model's own: {type: ema, decay: 0.999}.",
        kind="average",
    ),
    Section(
        "loss",
        "terms",
        "The loss, for a task without batch_loss: one term, or several.",
        kind="loss",
        keys=_TERM,
    ),
    Section("metrics", "specs", "Numbers computed in evaluation.", kind="metric", keys=_METRIC),
    Section(
        "outputs",
        "specs",
        "Stages that change or save the outputs of each batch, in this order.",
        kind="output",
        keys=_OUTPUT,
    ),
    Section(
        "evaluation",
        "specs",
        "Stages that act on a whole evaluation, in this order.",
        kind="evaluation",
        keys=_OUTPUT,
    ),
    Section(
        "monitor",
        "value",
        "The metric that decides which model is best: +val/acc or -val/loss.",
        annotation="str | dict[str, Any] | None",
        default=None,
        keys=_MONITOR,
    ),
    _options("train", "How long to train and when to evaluate.", f"{_OPTIONS}:TrainOptions"),
    _options("engine", "How the hardware is used.", f"{_OPTIONS}:EngineOptions"),
    _options("log", "What is shown and recorded while training.", f"{_OPTIONS}:LogOptions"),
    _options(
        "checkpoint",
        "When the whole state is saved, and which checkpoints are kept.",
        f"{_OPTIONS}:CheckpointOptions",
    ),
    _options(
        "record", "Where the record is written.", "epochal.records.folder.folder:RecordOptions"
    ),
    _options(
        "launch",
        "Where epochal launch starts the run: this machine, Ray or Slurm.",
        "epochal.launch.launch_options:LaunchOptions",
    ),
    Section(
        "notify",
        "specs",
        "Where mail is sent besides the mailbox: smtp, webhook or apprise.",
        kind="channel",
        keys=_NOTIFY,
    ),
    Section(
        "hooks",
        "specs",
        "Objects that are called at fixed points of the run.",
        kind="hook",
        options=f"{_OPTIONS}:HookOptions",
    ),
)

LOADER_SECTIONS = (
    Section("pipes", "specs", "What a chain starts with: data.<split>.pipes[0].", kind="source"),
    Section("pipes", "specs", "The steps of a chain, in data.<split>.pipes.", kind="pipe"),
    Section("sampler", "spec", "The order of an epoch: data.<split>.sampler.", kind="sampler"),
    Section("collate", "spec", "Batches of samples: data.<split>.collate.", kind="collate"),
)
"""The kinds of component in a split, beside its dataset."""

SECTIONS: Mapping[str, Section] = MappingProxyType({section.name: section for section in _ALL})
"""Every top-level key."""

SPLITS = "epochal.engine.interfaces.splits:SPLITS"
SPLIT_ALIASES = "epochal.engine.interfaces.splits:SPLIT_ALIASES"


def section_signature(section: Section, finder: ModuleFinder) -> Signature:
    """The section's own keys as one signature."""
    owner = f"section {section.name!r}"
    module, _, name = section.options.partition(":")
    definition = finder.find_definition(f"{module}.{name}") if module else None
    if definition is None:
        return Signature(owner, section.keys, open=bool(module))
    found = definition_signature(definition, finder)
    return replace(found, owner=owner, parameters=found.parameters + section.keys)


@cached_by_finder
def read_table(where: str, finder: ModuleFinder) -> Plain:
    """A literal table of another layer, read from its source; empty if there is none."""
    module_name, _, name = where.partition(":")
    module = finder.find_module(module_name)
    binding = module.bindings.get(name) if module is not None else None
    if module is None or not isinstance(binding, Variable):
        return {}
    found = read_literal(binding.value, module)
    return found if isinstance(found, dict | list) else {}


def split_names(finder: ModuleFinder) -> dict[str, str]:
    """Every name of a split, with its canonical name."""
    aliases: dict[str, str] = dict(read_table(SPLIT_ALIASES, finder))
    return {name: name for name in read_table(SPLITS, finder)} | aliases
