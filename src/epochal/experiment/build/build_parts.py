"""The build steps of an experiment, each from the config or from a given object."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, final

import torch
from torch.utils.data import DataLoader
from typing_extensions import override

from epochal.check.sections.losses import iter_loss_terms
from epochal.check.sections.pipes import has_pipes
from epochal.check.values.unknown_keys import describe_unknown
from epochal.checkpoint.weights import init_weights, load_caches_from, locate_weights
from epochal.data.chain import Chain
from epochal.data.chain_loader import ChainLoader
from epochal.data.file_rows import FileRows
from epochal.data.folds import split_loader
from epochal.data.loader import LoaderOptions, build_loader
from epochal.data.sources import ImageFolder, refuse_other_labels
from epochal.distributed.world import SingleProcess
from epochal.engine.device.move import move_module, parse_dtype
from epochal.engine.device.precision import sync_batchnorm
from epochal.engine.device.seeding import derive_seed
from epochal.engine.feed.feed import read_task_attribute
from epochal.engine.interfaces.hook import Hook
from epochal.engine.interfaces.options import EngineOptions, HookOptions
from epochal.engine.interfaces.splits import SPLITS, split_name
from epochal.engine.loss.loss import Loss, LossTerm
from epochal.engine.loss.metric_adapter import MetricAdapter, adapt_metric
from epochal.engine.step.shard_model import shard_by_patterns
from epochal.errors import ConfigError, DataError, Problem, suggest
from epochal.experiment.config.inputs import check_given_part

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from epochal.config import Node
    from epochal.engine import Metric, Run, Task
    from epochal.experiment.build.builder import Assembly, Builder
    from epochal.experiment.config.script_arguments import Args

_LOADERS_ATTRIBUTE = "_splits_with_loaders_from_the_experiment"
Part = Any  # an object of the user's class
Prepare = Callable[["Args"], Part] | None
logger = logging.getLogger(__name__)


def build_part(assembly: Assembly, section: str, prepare: Prepare) -> Part:
    """The task or the model: given, prepared, or what its section describes."""
    given = assembly.given.parts.get(section)
    if given is not None:
        return given
    if prepare is not None:
        part = prepare(assembly.args)
        check_given_part(section, part, source=f"prepare_{section}")
        return part
    spec = assembly.spec(section)
    if spec is None:
        hint = f"give {section}=..., write the section {section}:, or define prepare_{section}"
        raise ConfigError(Problem(section, "there is none", hint=hint))
    return assembly.builder.build(spec)


def build_data(assembly: Assembly, task: Task) -> None:
    """Give the task the loaders that the section ``data`` describes, or that were given."""
    given: Mapping[str, Any] = assembly.given.parts.get("data", {})
    loaders = {split_name(name): _load_given(assembly, one, name) for name, one in given.items()}
    section = assembly.config.mapping.get("data")
    for name, node in section.mapping.items() if section is not None else ():
        loaders[split_name(name)] = build_split(assembly, node, name, f"data.{name}")
    _compare_labels(loaders)
    # An earlier run with the same task may have set some.
    placed: set[str] = getattr(task, _LOADERS_ATTRIBUTE, set())
    for split, loader in loaders.items():
        is_input = isinstance(getattr(loader, "dataset", None), FileRows)  # it replaces the task's
        if is_input and hasattr(task, "input_sample"):
            loader.dataset.prepare = task.input_sample
        is_taken = split not in placed and getattr(task, f"{split}_loader", None) is not None
        if is_taken and not is_input:
            what = f"{type(task).__name__} sets {split}_loader already"
            hint = f"remove data.{split}, or leave the loader to the config"
            raise ConfigError(Problem(f"data.{split}", what, hint=hint))
        setattr(task, f"{split}_loader", loader)
    setattr(task, _LOADERS_ATTRIBUTE, placed | loaders.keys())
    if assembly.is_debug:
        _use_no_workers(task)


def _compare_labels(loaders: Mapping[str, Part]) -> None:
    """Refuse folders of images whose classes have other labels than in the training data."""
    for known in _find_image_folders(loaders.get("train")):
        for split in ("val", "test"):
            for source in _find_image_folders(loaders.get(split)):
                refuse_other_labels(source, known, split)


def _find_image_folders(loader: Part) -> list[ImageFolder]:
    found = loader.values() if isinstance(loader, Mapping) else [loader]
    sources = [one.chain.pipes[0] for one in found if isinstance(one, ChainLoader)]
    return [one for one in sources if isinstance(one, ImageFolder)]


def _load_given(assembly: Assembly, given: Part, split: str) -> Part:
    """The loader of a split that Python gives: a loader, a chain, or pipes with options."""
    if isinstance(given, Chain):
        given = {"pipes": [given]}
    if not isinstance(given, Mapping) or "pipes" not in given:
        return given
    unknown = given.keys() - {"pipes", *(one.name for one in fields(LoaderOptions))}
    if unknown:
        name = min(unknown)
        hint = suggest(name, [one.name for one in fields(LoaderOptions)])
        raise ConfigError(Problem(f"data.{split}.{name}", describe_unknown(name), hint=hint))
    options = LoaderOptions(**{name: one for name, one in given.items() if name != "pipes"})
    chain = Chain(*given["pipes"])
    return build_loader(chain, options, split=split_name(split), device=assembly.device)


def build_split(assembly: Assembly, node: Node, name: str, path: str) -> Part:
    """The loader of the split at ``path``, or its loaders by name."""
    if "type" in node.mapping or has_pipes(node):
        return _build_loader(assembly, node, name, path)
    return {
        loader: _build_loader(assembly, child, name, f"{path}.{loader}")
        for loader, child in node.mapping.items()
    }


def _build_loader(assembly: Assembly, node: Node, split: str, path: str) -> DataLoader[Any]:
    try:
        return _read_loader(assembly, node, split, path)
    except DataError as error:
        where, _, what = str(error).partition(": ")
        if where != "data":
            raise
        raise DataError(f"{path}: {what}") from error


def _read_loader(assembly: Assembly, node: Node, split: str, path: str) -> DataLoader[Any]:
    if has_pipes(node):
        read = assembly.builder.read_options("data", node.without("pipes"), path=path)
        options = LoaderOptions(**read)
        dataset: Part = build_chain(assembly.builder, node.mapping["pipes"], f"{path}.pipes")
    else:
        spec = assembly.builder.read(node, "data", path)
        options = LoaderOptions(**assembly.builder.options(spec))
        dataset = assembly.builder.build(spec)
    return build_loader(dataset, options, split=split_name(split), device=assembly.device)


def build_chain(builder: Builder, node: Node, path: str) -> Chain:
    """The chain of a list of pipes; a function is a pipe itself, with the arguments given."""
    pipes = []
    for number, child in enumerate(node.elements):
        kind = "pipe" if number else "source"
        pipes.append(builder.bind(builder.read(child, "", f"{path}.{number}", kind=kind)))
    return Chain(*pipes)


def _use_no_workers(task: Task) -> None:
    """Read data in this process, so that a debugger reaches the dataset's code."""
    for split in SPLITS:
        loader = getattr(task, f"{split}_loader", None)
        for one in loader.values() if isinstance(loader, Mapping) else (loader,):
            if isinstance(one, DataLoader):
                one.num_workers = 0


def place_model(assembly: Assembly, model: nn.Module) -> nn.Module:
    """The model in its number format, with its initial weights, on the run's device."""
    options = _init_options(assembly)
    is_meta = any(one.is_meta for one in model.parameters())  # the main process sends its values
    if options and not assembly.is_resumed and not is_meta:
        init_weights(model, locate_weights(options.pop("path")), **options)
    if assembly.args.engine.sync_batchnorm:
        model = sync_batchnorm(model, assembly.device)
    is_whole = isinstance(assembly.world, SingleProcess)
    is_sharded = assembly.args.engine.strategy == "fsdp" and not is_whole
    model = move_module(
        model,
        # Parameters move to the device once they are divided: all of them may not fit.
        torch.device("meta" if is_meta else "cpu") if is_sharded else assembly.device,
        parse_dtype(model_dtype(assembly)),
        channels_last=assembly.args.engine.channels_last,
    )
    if is_sharded:
        engine = EngineOptions(**assembly.options("engine"))
        model = shard_by_patterns(model, engine, assembly.device, assembly.world)
    return model


def read_caches(assembly: Assembly) -> dict[str, Any]:
    """The caches of the training whose weights ``init_from`` names; empty without one."""
    options = _init_options(assembly)
    return load_caches_from(locate_weights(options["path"])) if options else {}


def _init_options(assembly: Assembly) -> dict[str, Any]:
    """The keys of ``init_from``; empty without one."""
    node = assembly.config.mapping.get("init_from")
    wanted = None if node is None else node.to_plain()
    if wanted is None:
        return {}
    return dict(wanted) if isinstance(wanted, Mapping) else {"path": wanted}


def refuse_half_weights(model: nn.Module) -> None:
    """Refuse to train float16 weights: most updates are too small for them and are lost.

    Raises:
        ConfigError: A parameter to train has that format.
    """
    for name, parameter in model.named_parameters():
        if parameter.dtype == torch.float16 and parameter.requires_grad:
            what = f"the weights {name!r} are float16, in which most updates round to zero"
            hint = "give model.float(), and write engine.precision: bf16 or fp16"
            raise ConfigError(Problem("model", what, hint=hint))


def model_dtype(assembly: Assembly) -> str | None:
    """The number format of ``model.dtype``, or that of ``engine.precision``.

    None if the config has neither, and Python gives the model: it stays as it is.
    """
    node = assembly.config.find("model.dtype")
    if node is None:  # the section is not used, but its dtype applies
        section = vars(assembly.args).get("model")
        dtype = getattr(section, "dtype", None)
    else:
        dtype = None if node.layer == "default" else str(node.value)
    if dtype is None and assembly.args.engine.precision == "fp64":
        return "float64"
    return dtype or (None if node is None else str(node.value))


def build_metrics(assembly: Assembly) -> dict[str, Metric]:
    """The metric objects of the section ``metrics``, and those that were given, by name."""
    metrics: dict[str, Metric] = {}
    for spec in _specs(assembly, "metrics"):
        options = assembly.builder.options(spec)
        metric = adapt_metric(
            assembly.builder.bind(spec),
            inputs=options["inputs"],
            key=spec.path,
            place=assembly.config.get(spec.path).place,
        )
        if options["on"] is not None:
            metric.on = tuple(split_name(split) for split in options["on"])
        factory = spec.factory
        own_name = factory.qualname.lower() if "." in factory.name else factory.name
        _add_metric(metrics, options["name"] or own_name, metric)
    for given in assembly.given.metrics:
        metric = adapt_metric(given)
        name = metric.name if isinstance(metric, MetricAdapter) else type(metric).__name__.lower()
        _add_metric(metrics, name, metric)
    return metrics


def build_output_stages(assembly: Assembly, section: str) -> list[object]:
    """The stages of the section ``outputs`` or ``evaluation``, and those that were given."""
    stages: list[object] = []
    for spec in _specs(assembly, section):
        stage = assembly.builder.bind(spec)
        splits = assembly.builder.options(spec)["on"]
        if splits is not None:
            stage.on = tuple(split_name(split) for split in splits)
        stages.append(stage)
    return [*stages, *assembly.given.lists[section]]


def _add_metric(metrics: dict[str, Metric], name: str, metric: Metric) -> None:
    if name in metrics:
        hint = "give one of them another `name:`"
        raise ConfigError(Problem("metrics", f"two metrics are called {name!r}", hint=hint))
    metrics[name] = metric


@final
class _Middleware(Hook):
    """Calls a user's function with the run at set-up; it may replace parts and methods."""

    def __init__(self, function: Callable[[Run], object]) -> None:
        self.function = function

    @override
    def setup(self, run: Run) -> None:
        self.function(run)


def build_hooks(assembly: Assembly) -> list[object]:
    """The hooks of the section ``hooks``, and those given as objects or functions."""
    hooks: list[object] = []
    for spec in _specs(assembly, "hooks"):
        builder = assembly.builder
        is_middleware = _takes_run(builder.registry.load(spec.factory))
        hook = _Middleware(builder.bind(spec)) if is_middleware else builder.build(spec)
        options = HookOptions(**assembly.builder.options(spec))
        for name in ("on", "priority", "every", "runners"):
            if getattr(options, name) is not None:
                setattr(hook, name, getattr(options, name))
        hooks.append(hook)
    for given in assembly.given.hooks:
        is_function = (
            callable(given) and not isinstance(given, type) and not hasattr(given, "setup")
        )
        hooks.append(_Middleware(given) if is_function else given)
    return hooks


def _takes_run(factory: Part) -> bool:
    """Whether it is a function of the run, not one that makes a hook."""
    if not inspect.isfunction(factory):
        return False
    return next(iter(inspect.signature(factory).parameters), "") == "run"


def _specs(assembly: Assembly, section: str) -> Iterator[Any]:
    node = assembly.config.mapping.get(section)
    for index, child in enumerate(node.elements if node is not None else ()):
        yield assembly.builder.read(child, section, f"{section}.{index}")


def build_loss(assembly: Assembly) -> Loss | None:
    """The loss of the section ``loss``, or the one that was given, on the run's device."""
    given = assembly.given.parts.get("loss")
    if given is not None:
        loss = given if isinstance(given, Loss) else Loss([LossTerm(given)])
    else:
        terms = [_build_term(assembly, *entry) for entry in iter_loss_terms(assembly.config)]
        if not terms:
            return None
        loss = Loss(terms)
    move_module(loss, assembly.device, parse_dtype(model_dtype(assembly)), channels_last=False)
    return loss


def require_loss_parameters(loss: Loss | None, optimizer: Optimizer) -> None:
    """Refuse a loss whose parameters the optimizer does not have."""
    groups = optimizer.param_groups
    known = {id(parameter) for group in groups for parameter in group["params"]}
    for name, parameter in loss.trained_parameters().items() if loss is not None else ():
        if id(parameter) not in known:
            what = "is a parameter that no optimizer trains"
            hint = "give it to the optimizer too, or call requires_grad_(False)"
            raise ConfigError(Problem(name, what, hint=hint))


def _build_term(assembly: Assembly, path: str, name: str, node: Node) -> LossTerm:
    builder = assembly.builder
    spec = builder.read(node, "loss", path)
    options = builder.options(spec)
    return LossTerm(
        builder.bind(spec),
        name=name,
        weight=options["weight"],
        inputs=options["inputs"],
        key=path,
        place=node.place,
    )


def set_fold_loaders(assembly: Assembly, task: Task) -> None:
    """Replace a task's loaders by those of a fold, if the config sets ``train.folds``.

    Without ``train.fold``, as in a plan, it is the first fold.
    """
    train = assembly.args.train
    loader = None if train.folds is None else read_task_attribute(task, "train_loader")
    if loader is None:
        return  # no folds, or an evaluation without training data
    fold = split_loader(
        loader,
        train.fold or 1,
        train.folds,
        seed=derive_seed(assembly.seed, "folds"),
        stratify=train.stratify,
    )
    if read_task_attribute(task, "val_loader") is not None:
        logger.info("val: the fold's held-out data replaces the task's val_loader")
    for split, part in fold._asdict().items():
        try:
            setattr(task, f"{split}_loader", part)
        except AttributeError as error:
            what = (
                f"{type(task).__name__}.{split}_loader cannot be replaced by the loader of a fold"
            )
            hint = "set it in __init__ as an attribute, not as a property"
            raise ConfigError(Problem("train.folds", what, hint=hint)) from error
