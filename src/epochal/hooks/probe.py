"""Probe: records intermediate values, weights and gradients of some steps."""

from __future__ import annotations

import logging
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, final

from torch import Tensor
from typing_extensions import override

from epochal.engine.interfaces.every import Every
from epochal.engine.interfaces.hook import LOG_PRIORITY, Hook
from epochal.engine.interfaces.run import ignore_probe
from epochal.engine.run.engine_run import engine_run
from epochal.engine.tracking.draw_probe import (
    draw_attention,
    draw_frames,
    draw_histogram,
    read_figures,
    write_table,
)
from epochal.errors import TaskError, suggest

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.hooks import RemovableHandle

    from epochal.engine.interfaces.run import ProbeKind, Run

KINDS: tuple[ProbeKind, ...] = (
    *("scalar", "histogram", "image", "attention"),
    *("table", "text", "video"),
)
logger = logging.getLogger(__name__)


@final
class Probe(Hook):
    """Records what ``run.probe`` and ``ep.probe`` are given, in one step of each period.

    In evaluations it records the first batch. Other steps ignore probes. A captured or compiled
    run takes the probed step eagerly. Images, tables and texts become media of the record,
    numbers become metrics named ``<split>/probe/<name>``; trackers get both.

    Args:
        every: How often a training step is probed; the first one always is.
        watch: Patterns of parameters, such as ``encoder.*``, whose weights and gradients are
            recorded too.
        modules: Patterns of modules whose outputs are recorded too.
        limit: Most values of one probed step.
    """

    priority = LOG_PRIORITY
    on = ("train", "val", "test")

    def __init__(
        self,
        *,
        every: Every = "1000st",  # type: ignore[assignment]  # the schema shows what users type
        watch: list[str] | None = None,
        modules: list[str] | None = None,
        limit: int = 64,
    ) -> None:
        self.every = Every.parse(every)
        self._watch, self._modules, self._limit = watch or [], modules or [], limit
        self._found: dict[str, tuple[str, Any]] = {}
        self._handles: list[RemovableHandle] = []
        self._has_spoken = False
        self._is_step_pending = False

    @override
    def run_start(self, run: Run) -> None:
        self._is_step_pending = False
        names = [name for name, _ in run.model.named_parameters()]
        modules = [name for name, _ in run.model.named_modules()]
        wanted = (("watch", self._watch, names), ("modules", self._modules, modules))
        for key, patterns, known in wanted:
            for pattern in patterns:
                if not any(fnmatchcase(name, pattern) for name in known):
                    hint = suggest(pattern, filter(None, known))  # the model itself has no name
                    raise TaskError(f"Probe.{key}: nothing is called {pattern!r}\n  {hint}")

    @override
    def stage_start(self, run: Run, name: str) -> None:
        if "train" in self.on:
            self._open_step(run)

    @override
    def step_end(self, run: Run) -> None:
        self._open_step(run)

    @override
    def loop_start(self, run: Run, split: str) -> None:
        if split in ("val", "test"):
            self._open(run)

    @override
    def eval_end(self, run: Run, split: str, metrics: dict[str, float]) -> None:
        if self._is_step_pending:
            self._open(run)

    def on_validation_batch_end(self, run: Run) -> None:
        """Record the first batch of an evaluation."""
        self._close(run)

    def on_test_batch_end(self, run: Run) -> None:
        """Record the first batch of a test."""
        self._close(run)

    @override
    def teardown(self, run: Run) -> None:
        self._stop(run)

    def _open_step(self, run: Run) -> None:
        """Probe the next step."""
        inner = engine_run(run)
        if self._is_step_pending:
            return
        self._is_step_pending = True
        self._open(run)
        # Checked together with changes of user code, so that an ordinary step checks nothing.
        inner.events.has_run_user_code = True
        if not self._has_spoken and run.choices.get("step") in ("graph", "compile"):
            self._has_spoken = True
            logger.info("Probe: a probed step is taken eagerly, every %s", self.every)
        inner.plan.add_once("probe", Every(run.step + 1, "st"), self._close_step, priority=0)

    def _close_step(self, run: Run) -> None:
        self._is_step_pending = False
        for name, parameter in run.model.named_parameters() if self._watch else ():
            if any(fnmatchcase(name, pattern) for pattern in self._watch):
                self._take(f"weights/{name}", parameter, "histogram")
                if parameter.grad is not None:
                    self._take(f"gradients/{name}", parameter.grad, "histogram")
        self._close(run)

    def _open(self, run: Run) -> None:
        self._stop(run)
        self._found.clear()
        run.probe = self._take
        engine_run(run).is_probing = True
        for name, module in run.model.named_modules() if self._modules else ():
            if any(fnmatchcase(name, pattern) for pattern in self._modules):
                self._handles.append(module.register_forward_hook(_Recorder(self, name)))

    def _close(self, run: Run) -> None:
        if not engine_run(run).is_probing:
            return
        self._stop(run)
        for name, (kind, value) in self._found.items():
            _record(run, f"{run.split}/probe/{name}", kind, value)
        self._found.clear()

    def _stop(self, run: Run) -> None:
        run.probe = ignore_probe
        engine_run(run).is_probing = False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _take(self, name: str, value: object, kind: ProbeKind | None = None) -> None:
        chosen = kind or _guess_kind(value)
        if chosen not in KINDS:
            raise TaskError(f"probe: unknown kind {kind!r} of {name!r}\n  {suggest(chosen, KINDS)}")
        if len(self._found) < self._limit or name in self._found:
            kept = value.detach().clone() if isinstance(value, Tensor) else value
            self._found[name] = (chosen, kept)


@final
class _Recorder:
    """A forward hook that records the output of a module."""

    __module__ = "epochal.hooks.probe"

    def __init__(self, probe: Probe, name: str) -> None:
        self._probe, self._name = probe, name

    def __call__(self, module: nn.Module, inputs: object, output: Any) -> None:  # noqa: ANN401 - any
        found = output if isinstance(output, Tensor) else next(iter(_tensors(output)), None)
        if found is not None:
            self._probe._take(f"outputs/{self._name}", found, "histogram")


def _tensors(output: Any) -> list[Tensor]:  # noqa: ANN401 - any output
    parts = output.values() if isinstance(output, dict) else output
    return [one for one in parts if isinstance(one, Tensor)] if hasattr(parts, "__iter__") else []


def _guess_kind(value: object) -> ProbeKind:
    if isinstance(value, str):
        return "text"
    if isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1):
        return "scalar"
    if isinstance(value, Tensor):
        is_image = value.dim() == 3 and value.shape[0] in (1, 3, 4) and min(value.shape[1:]) >= 8
        return "image" if is_image else "histogram"
    return "image" if hasattr(value, "savefig") else "table"


def _record(run: Run, name: str, kind: str, value: Any) -> None:  # noqa: ANN401 - of any kind
    if kind == "scalar":
        run.log({name: value})
    elif kind == "text":
        run.save_media(name, str(value), kind="text")
    elif kind == "table":
        run.save_media(name, write_table(value), kind="table", suffix="csv")
    elif kind == "histogram":
        run.log({f"{name}/{figure}": one for figure, one in read_figures(value).items()})
        run.save_media(name, draw_histogram(value), kind="histogram")
    else:
        drawn = {"attention": draw_attention, "video": draw_frames}.get(kind)
        run.save_media(name, value if drawn is None else drawn(value), kind=kind, suffix="png")
