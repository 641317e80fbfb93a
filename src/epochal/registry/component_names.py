"""Short names of components: the built-in ones and those that users register."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, final

from epochal.errors import ConfigError, Problem, suggest

if TYPE_CHECKING:
    from pathlib import Path

ComponentT = TypeVar("ComponentT", bound=Callable[..., Any])

KINDS = (
    "task",
    "model",
    "data",
    "sampler",
    "loss",
    "metric",
    "optimizer",
    "schedule",
    "updater",
    "average",
    "output",
    "evaluation",
    "hook",
    "channel",
    "source",
    "pipe",
    "collate",
    "runner",
)
ANY_KIND = "component"
"""The kind of a spec inside another one: any, since only its owner restricts it."""

BUILTINS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "task": {
            "module": "epochal.engine.interfaces.task:ModuleTask",
            "lightning": "epochal.adapters.lightning:LightningTask",
        },
        "runner": {
            "train": "epochal.engine.runner:Train",
            "test": "epochal.engine.runner:Test",
            "predict": "epochal.engine.runner:Predict",
            "watch": "epochal.engine.watch_checkpoints:Watch",
        },
        "channel": {
            "smtp": "epochal.records.mail.channels:Smtp",
            "webhook": "epochal.records.mail.channels:Webhook",
            "apprise": "epochal.records.mail.channels:Apprise",
        },
        "schedule": {
            "constant": "epochal.components.schedules:Constant",
            "cosine": "epochal.components.schedules:Cosine",
            "exponential": "epochal.components.schedules:Exponential",
            "inverse_sqrt": "epochal.components.schedules:InverseSqrt",
            "linear": "epochal.components.schedules:Linear",
            "multi_step": "epochal.components.schedules:MultiStep",
            "noam": "epochal.components.schedules:Noam",
            "one_cycle": "epochal.components.schedules:OneCycle",
            "plateau": "torch.optim.lr_scheduler:ReduceLROnPlateau",
            "polynomial": "epochal.components.schedules:Polynomial",
            "step": "epochal.components.schedules:Step",
            "wsd": "epochal.components.schedules:Wsd",
        },
        "loss": {
            "bce": "epochal.components.losses:Bce",
            "contrastive": "epochal.components.losses:Contrastive",
            "cross_entropy": "epochal.components.losses:CrossEntropy",
            "dice": "epochal.components.losses:Dice",
            "focal": "epochal.components.losses:Focal",
            "huber": "epochal.components.losses:Huber",
            "kl": "epochal.components.losses:Kl",
            "l1": "epochal.components.losses:L1",
            "mse": "epochal.components.losses:Mse",
        },
        "metric": {
            "accuracy": "epochal.components.metrics:Accuracy",
            "auroc": "epochal.components.metrics:Auroc",
            "confusion_matrix": "epochal.components.metrics:ConfusionMatrix",
            "f1": "epochal.components.metrics:F1",
            "mae": "epochal.components.metrics:Mae",
            "mean": "epochal.components.metrics:Mean",
            "miou": "epochal.components.metrics:MeanIou",
            "perplexity": "epochal.components.metrics:Perplexity",
            "precision": "epochal.components.metrics:PrecisionScore",
            "r2": "epochal.components.metrics:R2",
            "recall": "epochal.components.metrics:Recall",
            "rmse": "epochal.components.metrics:Rmse",
        },
        "data": {"file": "epochal.data.file_rows:FileRows"},
        "collate": {
            "list": "epochal.data.batching:list_samples",
            "pad": "epochal.data.batching:PadCollate",
            "stack": "torch.utils.data._utils.collate:default_collate",
        },
        "sampler": {
            "RandomSampler": "torch.utils.data.sampler:RandomSampler",
            "SequentialSampler": "torch.utils.data.sampler:SequentialSampler",
            "SubsetRandomSampler": "torch.utils.data.sampler:SubsetRandomSampler",
            "WeightedRandomSampler": "torch.utils.data.sampler:WeightedRandomSampler",
        },
        "output": {
            "collect": "epochal.components.outputs:Collect",
            "save_images": "epochal.components.outputs:SaveImages",
            "save_json_lines": "epochal.components.outputs:SaveJsonLines",
            "save_parquet": "epochal.components.outputs:SaveParquet",
        },
        "evaluation": {
            "keep_best": "epochal.components.evaluation:KeepBest",
            "save_examples": "epochal.components.evaluation:SaveExamples",
        },
        "average": {
            "ema": "epochal.components.average:Ema",
            "swa": "epochal.components.average:Swa",
        },
        "source": {
            "arrays": "epochal.data.sources:Arrays",
            "csv": "epochal.data.sources:Csv",
            "files": "epochal.data.sources:Files",
            "huggingface": "epochal.data.sources:HuggingFace",
            "image_folder": "epochal.data.sources:ImageFolder",
            "jsonl": "epochal.data.sources:Jsonl",
            "list": "epochal.data.sources:Items",
            "mix": "epochal.data.order_pipes:Mix",
            "parquet": "epochal.data.sources:Parquet",
            "safetensors": "epochal.data.sources:Safetensors",
            "text": "epochal.data.sources:Text",
        },
        "pipe": {
            "batch": "epochal.data.batching:Batch",
            "bucket_by_length": "epochal.data.batching:BucketByLength",
            "cache": "epochal.data.caching:Cache",
            "filter": "epochal.data.transforms:Filter",
            "flat_map": "epochal.data.transforms:FlatMap",
            "map": "epochal.data.transforms:Map",
            "materialise": "epochal.data.caching:Materialise",
            "pack": "epochal.data.batching:Pack",
            "pad": "epochal.data.batching:Pad",
            "repeat": "epochal.data.order_pipes:Repeat",
            "sample": "epochal.data.order_pipes:Sample",
            "shard_by_rank": "epochal.data.order_pipes:ShardByRank",
            "shuffle": "epochal.data.order_pipes:Shuffle",
            "shuffle_buffer": "epochal.data.order_pipes:ShuffleBuffer",
            "skip": "epochal.data.order_pipes:Skip",
            "slice": "epochal.data.order_pipes:Slice",
            "split_by_worker": "epochal.data.order_pipes:SplitByWorker",
            "take": "epochal.data.order_pipes:Take",
            "webdataset": "epochal.data.webdataset:WebDataset",
        },
        "hook": {
            "Console": "epochal.hooks.console:Console",
            "CsvLog": "epochal.hooks.points_file:CsvLog",
            "CutMix": "epochal.hooks.mixing:CutMix",
            "DataSheet": "epochal.inspect.data_sheet:DataSheet",
            "EarlyStopping": "epochal.hooks.early_stopping:EarlyStopping",
            "JsonLines": "epochal.hooks.points_file:JsonLines",
            "MLflow": "epochal.hooks.mlflow:MLflow",
            "Mixup": "epochal.hooks.mixing:Mixup",
            "Probe": "epochal.hooks.probe:Probe",
            "Profiler": "epochal.hooks.profiler:Profiler",
            "Recording": "epochal.hooks.recording:Recording",
            "SafetensorsExport": "epochal.hooks.safetensors_export:SafetensorsExport",
            "TensorBoard": "epochal.hooks.tensorboard:TensorBoard",
            "WandB": "epochal.hooks.wandb:WandB",
        },
    }
)


@final
@dataclass(frozen=True, slots=True)
class Factory:
    """The callable that a name means, found without importing it."""

    kind: str
    name: str
    """As written in the config."""

    module: str
    qualname: str
    file: Path | None = None
    """The source that defines it; None when it could not be read."""

    line: int = 0
    object: Callable[..., Any] | None = None
    """The live callable, when Python code registered or passed it."""

    @property
    def dotted(self) -> str:
        """The full name, such as ``digits.model.Mlp``."""
        return f"{self.module}.{self.qualname}"


@final
@dataclass(frozen=True, slots=True)
class Registered:
    """A factory that ``register`` gave a short name."""

    factory: Factory
    override: bool


REGISTERED: dict[str, dict[str, Registered]] = {kind: {} for kind in KINDS}
"""What Python code registered so far, by kind and name."""


def register(
    kind: str, name: str | None = None, *, override: bool = False
) -> Callable[[ComponentT], ComponentT]:
    """A decorator that lets configs name a class or function by a short name.

    The name is the object's own unless another is given. A taken name is an error, unless
    ``override`` replaces the old component.

    Raises:
        ConfigError: The kind does not exist, or the name is taken.
    """
    if kind not in KINDS:
        raise ConfigError(Problem("register", f"unknown kind {kind!r}", hint=suggest(kind, KINDS)))

    def add(component: ComponentT) -> ComponentT:
        short = name or component.__name__
        code = getattr(component, "__code__", None)
        factory = Factory(
            kind,
            short,
            component.__module__,
            component.__qualname__,
            line=code.co_firstlineno if code is not None else 0,
            object=component,
        )
        entry = Registered(factory, override)
        problem = conflict(entry, REGISTERED[kind].get(short))
        if problem is not None:
            raise ConfigError(problem)
        REGISTERED[kind][short] = entry
        return component

    return add


def conflict(new: Registered, old: Registered | None) -> Problem | None:
    """What is wrong with registering a name that may be taken."""
    factory = new.factory
    holder = BUILTINS.get(factory.kind, {}).get(factory.name, "").replace(":", ".")
    if old is not None:
        holder = old.factory.dotted
    # The same definition again: notebooks load a module twice.
    if new.override or not holder or holder == factory.dotted:
        return None
    return Problem(
        f"{factory.kind} {factory.name}",
        f"{factory.dotted!r} cannot have this name, which {holder!r} already has",
        hint="choose another name, or register it with override=True",
    )
