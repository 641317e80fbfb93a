"""Banner: an overview of the run and its machine, shown before the first step."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, final

import torch
from typing_extensions import override

from epochal.config import Node
from epochal.distributed.environment import read_rank_environment
from epochal.distributed.fsdp import name_class
from epochal.engine.feed.feed import count_batches, named_loaders
from epochal.engine.interfaces.every import join_periods
from epochal.engine.interfaces.hook import LOG_PRIORITY, Hook
from epochal.engine.interfaces.splits import SPLITS, split_name
from epochal.engine.optim.multi_optimizer import Optimizers
from epochal.engine.optim.select_parameters import count_parameters
from epochal.engine.run.engine_run import engine_run
from epochal.engine.run.stage_progress import LIMIT_REASONS
from epochal.engine.tracking.tracker import describe_trackers
from epochal.records.folder.folder import CHECKPOINTS_DIR
from epochal.records.secrets import redact, redact_config, redact_tree
from epochal.text.formatting import format_count

if TYPE_CHECKING:
    from rich.console import Group
    from torch.optim import Optimizer

    from epochal.distributed.environment import RankEnvironment
    from epochal.engine.interfaces.run import Run
    from epochal.engine.run.engine_run import EngineRun

logger = logging.getLogger(__name__)

_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./+~$-][A-Za-z0-9_./+~ $-]*")
_VERSION = re.compile(r"\d+\.\d[\d.]*")
_TITLE_KEYS = ("tag", "desc")
_EMPTY: tuple[object, ...] = (None, "", [], {})
_MAX_LOAD_PER_CORE = 2.0  # above this load, one thread is often faster


@final
class Banner(Hook):
    """Shows tag, purpose, folder, machine, model, data and config when a run starts.

    A run that only tests or predicts shows its weights instead of the config. A resumed run shows
    its checkpoint and what has changed.

    Args:
        machine: Facts about the device, such as its ``name`` and ``driver``.
        config: The config to show; by default that of the run. In a ``Node``, values from the
            environment are shown as they were written, since they may be secrets.
        num_defaults: How many values of the config are defaults.
        source: The config file, for the hint how to list those values.
        variant: The variant of the config, if one was chosen.
    """

    priority = LOG_PRIORITY

    def __init__(
        self,
        *,
        machine: Mapping[str, object] | None = None,
        config: Node | Mapping[str, object] | None = None,
        num_defaults: int = 0,
        source: str = "",
        variant: str | None = None,
    ) -> None:
        self._machine = machine or {}
        self._config = config
        self._num_defaults = num_defaults
        self._source = source
        self._variant = variant

    @override
    def run_start(self, run: Run) -> None:
        title = run.tag or "untitled run"
        title += f", variant {self._variant}" * (self._variant is not None)
        purpose = str(run.config.get("desc") or "")
        splits = evaluated_splits(run)
        facts = self._facts(run, splits)
        shown = run.config if self._config is None else self._config
        config = [] if splits or run.resume is not None else compact(shown)
        title, purpose = redact(title), redact(purpose)
        facts = {name: redact(fact) for name, fact in facts.items()}
        renderable: Group | None = draw(title, purpose, facts, config)
        # On a terminal the first record shows the whole banner, the others nothing.
        for line in plain_lines(title, purpose, facts, config):
            logger.info(line, extra={"screen": renderable})
            renderable = None

    @override
    def run_end(self, run: Run) -> None:
        is_over = run.stop_reason in LIMIT_REASONS.values()
        if is_over and run.first_step and run.step == run.first_step:
            at = f"step {run.step}, epoch {run.epoch}"
            logger.info("nothing is left to train: %s was reached at %s", run.stop_reason, at)

    def _facts(self, run: Run, splits: tuple[str, ...]) -> dict[str, str]:
        facts = {
            "folder": "" if run.dir is None else str(run.dir),
            "processes": describe_processes(run.world_size, read_rank_environment()),
            **(describe_weights(_find_weights(run)) if splits else {}),
            **describe_resume(run),
            "device": describe_device(run.device, self._machine),
            "busy": describe_load(run.device, torch.get_num_threads(), _read_load()),
            "torch": torch.__version__,
            "model": describe_model(run.model),
            "optim": describe_optimizer(run.optimizer),
            "data": describe_data(run, splits or SPLITS),
            **({} if splits else describe_periods(engine_run(run))),
            **({"save": ""} if run.dir is None else {}),
            "trackers": "" if run.dir is None else describe_trackers(run),
            "defaults": "" if splits or run.resume is not None else self._describe_defaults(),
        }
        return {name: fact for name, fact in facts.items() if fact}

    def _describe_defaults(self) -> str:
        if not self._num_defaults:
            return ""
        count = f"{format_count(self._num_defaults, 'value')} filled in"
        listed = "it" if self._num_defaults == 1 else "them"
        return f"{count}; `epochal plan {self._source}` lists {listed}" if self._source else count


def describe_processes(world_size: int, started: RankEnvironment | None) -> str:
    """How many processes share the run, or how many were started that do not share it."""
    if world_size > 1:
        return f"{world_size}, which share each batch"
    if started is None or started.world_size == 1:
        return ""
    return f"rank {started.rank} of {started.world_size}, each a separate run that shares nothing"


def evaluated_splits(run: Run) -> tuple[str, ...]:
    """The splits of a run that only tests or predicts; empty for all others."""
    runner = run.config.get("runner")
    options = runner if isinstance(runner, Mapping) else {"type": runner}
    if options.get("type") in ("test", "watch"):
        return (split_name(str(options.get("split", "test"))),)
    if options.get("type") == "predict":
        return ("predict",) if named_loaders(run.task, "predict") else ("test",)
    return ()


def _find_weights(run: Run) -> object:
    """The weights that a run starts with, or the run whose checkpoints it evaluates."""
    runner = run.config.get("runner")
    watched = runner.get("run") if isinstance(runner, Mapping) else None
    return f"{watched}/checkpoints" if watched else run.config.get("init_from")


def describe_weights(file: object) -> dict[str, str]:
    """The file of the weights, and its run if the file is in a run's folder."""
    if not file:
        return {"weights": "as the model was built"}
    file = file.get("path") if isinstance(file, Mapping) else file
    path = Path(str(file))
    run = {"of run": str(path.parent.parent)} if path.parent.name == CHECKPOINTS_DIR else {}
    return {**run, "weights": str(file)}


def describe_resume(run: Run) -> dict[str, str]:
    """The checkpoint of a resumed run and the changes since; empty for a new run."""
    if run.resume is None:
        return {}
    point = run.resume.manifest
    changed = run.facts.get("changed") or ()
    return {
        "resumed": f"from {point.name}: step {point.step}, epoch {point.epoch}",
        "changed": "; ".join(map(str, changed)),
    }


def describe_device(device: torch.device, machine: Mapping[str, object]) -> str:
    """Name, memory and versions of the device, as known from ``machine``."""
    parts = [str(device), str(machine.get("name") or "")]
    memory = machine.get("memory_bytes")
    if isinstance(memory, int):
        parts.append(f"{memory / 2**30:.0f} GiB")
    for key in ("driver", "cuda"):
        # The driver reports a whole line; only its version is of interest.
        version = _VERSION.search(str(machine.get(key) or ""))
        parts.append(f"{key} {version[0]}" if version else "")
    return ", ".join(part for part in parts if part)


def describe_load(device: torch.device, threads: int, load: tuple[float, int]) -> str:
    """A hint if threads on the CPU will wait for each other; ``load`` has average and cores."""
    average, cores = load
    if device.type != "cpu" or threads == 1 or average < _MAX_LOAD_PER_CORE * cores:
        return ""
    hint = f"small models may train many times faster with engine.num_threads=1 than with {threads}"
    return f"load {average:.0f} on {format_count(cores, 'core')}; {hint}"


def _read_load() -> tuple[float, int]:
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return (os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0), cores


def describe_model(model: torch.nn.Module) -> str:
    """Class and number of parameters; tied parameters count once."""
    count = count_parameters(model)
    text = f"{name_class(model)}, {format_count(count.total, 'parameter')}"
    if count.trained != count.total:
        text += f", {count.trained:,} of them trained"
    return text if count.is_complete else f"{text}; some sizes are set by the first batch"


def describe_optimizer(optimizer: Optimizer | None) -> str:
    """Class, and whether it is fused; empty if there is no optimizer."""
    if optimizer is None:
        return ""
    if isinstance(optimizer, Optimizers):
        members = (f"{one.name} {describe_optimizer(one.optimizer)}" for one in optimizer)
        return ", ".join(members)
    is_fused = all(group.get("fused") for group in optimizer.param_groups)
    return type(optimizer).__name__ + (" (fused)" if is_fused else "")


def describe_data(run: Run, splits: Sequence[str] = SPLITS) -> str:
    """Samples and batches of every loader, where known."""
    sizes = []
    for split in splits:
        for name, loader in named_loaders(run.task, split).items():
            label = f"{split}/{name}" if name else split
            dataset = getattr(loader, "dataset", None)
            samples = len(dataset) if isinstance(dataset, Sized) else None
            batches = count_batches(loader, None)
            known = [
                format_count(count, unit)
                for count, unit in ((samples, "sample"), (batches, "batch"))
                if count is not None
            ]
            sizes.append(f"{label} {' in '.join(known) or 'of unknown size'}")
    return "; ".join(sizes)


def describe_periods(run: EngineRun) -> dict[str, str]:
    """How often a training evaluates and saves; empty for other runs."""
    train, length = run.options.train, run.stage_progress.stages[-1].length
    if not run.stage_progress.starts:
        return {}
    ends_inside_epoch = length is not None and length.unit != "ep"
    texts = []
    for split, periods in run.eval_periods.items():
        if named_loaders(run.task, split) and not periods[0].is_never:
            is_auto = train.eval_periods[split] == "auto"
            has_end = train.eval_at_end or (is_auto and ends_inside_epoch)
            texts.append(f"{split} every {join_periods(periods)}{' and at the end' * has_end}")
    saves = [
        join_periods(run.stage_progress.find_periods(one)) for one in run.options.checkpoint.periods
    ]
    limit = train.max_eval_batches
    limited = f"; {format_count(limit, 'batch')} each" if limit is not None else ""
    return {
        "evaluate": "; ".join(texts) + limited if texts else "",
        "save": f"every {', '.join(saves)} and at the end" if saves else "at the end",
    }


def compact(config: Node | Mapping[str, object]) -> list[str]:
    """One line for each section of a config, without secrets and empty values."""
    shown = redact_config(config).to_public() if isinstance(config, Node) else redact_tree(config)
    return [
        f"{key}: {_flow(value)}"
        for key, value in shown.items()
        if key not in _TITLE_KEYS and value not in _EMPTY
    ]


def plain_lines(
    title: str, purpose: str, facts: Mapping[str, str], config: Sequence[str]
) -> list[str]:
    """The banner for files and pipes."""
    lines = [title, *purpose.splitlines(), *(f"{name}: {fact}" for name, fact in facts.items())]
    return [*lines, *(["config:"] if config else []), *(f"  {line}" for line in config)]


def draw(title: str, purpose: str, facts: Mapping[str, str], config: Sequence[str]) -> Group:
    """The banner for a terminal."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in facts.items():
        table.add_row(name, Text(fact))
    if config:
        sections = Table.grid(padding=(0, 1, 0, 0))
        sections.add_column(style="cyan", no_wrap=True)
        sections.add_column(overflow="fold", style="dim")
        for line in config:
            key, _, value = line.partition(" ")
            sections.add_row(Text(key), Text(value))
        table.add_row("config", sections)
    parts = [Text(title, "bold")]
    if purpose:
        parts.append(Text(purpose, "italic"))
    return Group(*parts, Padding(table, (0, 0, 1, 0)))


def _flow(value: object) -> str:
    """A value in one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(child) for child in value) + "]"
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value):
        return value
    if value is None or isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
