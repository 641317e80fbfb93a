"""The contenders of the GPU benchmark; this file is the program of one fresh process each.

Every contender trains the same model on the same batches with AdamW, and calls the watch.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import epochal as ep

BEGUN = time.time()

import gpu_work as work  # noqa: E402  # torch takes seconds, which count as well
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

Batch = Any  # a pair of tensors, or a mapping for who needs names
Option = Any  # of an optimizer, of a section: each has its own type

WEIGHT_DECAY = 0.01
LONG = {"tiny": 100_000_000, "resnet18": 2_000_000, "gpt2": 500_000}
"""Steps of a run that is worth compiling for: far more than ten minutes."""

PATIENCE = 60.0
"""Seconds after which a step that was never compiled is measured as it is."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What a contender is given."""

    case: work.Case
    device: torch.device
    model: nn.Module
    watch: work.Watch
    scratch: Path
    is_quick: bool

    @property
    def num_batches(self) -> int:
        """One more than are timed: the watch looks when a step begins."""
        return self.case.steps + 1


def adamw(bench: Bench, **options: Option) -> torch.optim.AdamW:
    """The optimizer that everyone uses."""
    lr = options.pop("lr", bench.case.lr)
    parameters = bench.model.parameters()
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=WEIGHT_DECAY, **options)


# -- by hand


def hand(
    bench: Bench,
    *,
    is_reference: bool = False,
    compiled: bool = False,
    samples: bool = False,
    **options: Option,
) -> None:
    """The loop that people write; as the reference it goes on for those who settle late."""
    case, device, watch = bench.case, bench.device, bench.watch
    optimizer = adamw(bench, **options)
    model = torch.compile(bench.model) if compiled else bench.model
    count = case.steps * (case.passes if is_reference else 1) + 1
    loader = sample_loader(bench, count) if samples else work.make_loader(case, device, count)
    for x, y in loader:
        watch.tick()
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with work.autocast(case, device):
            loss = work.loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def sample_loader(bench: Bench, count: int) -> DataLoader[Batch]:
    """A loader that fetches sample by sample, as most people have it."""
    case = bench.case
    assert count <= case.pool, "a second epoch would begin within the measurement"
    dataset = TensorDataset(*(rows[: count * case.batch] for rows in work.make_tensors(case)))
    return DataLoader(dataset, batch_size=case.batch, pin_memory=bench.device.type == "cuda")


def hand_fused(bench: Bench) -> None:
    """The loop by hand with the optimizer that Epochal builds on a CUDA device."""
    if bench.device.type == "cuda":
        lr = torch.tensor(bench.case.lr, device=bench.device)
        hand(bench, fused=True, capturable=True, lr=lr)
    else:
        hand(bench, fused=True)


def hand_captured(bench: Bench) -> None:
    """The best that is known: model and loss compiled, the whole step captured, all by hand."""
    if bench.device.type != "cuda":
        raise SystemExit("needs a CUDA device")
    case, device, watch, model = bench.case, bench.device, bench.watch, bench.model
    form = torch.channels_last if case.name == "resnet18" else torch.contiguous_format
    model.to(memory_format=form)
    lr = torch.tensor(case.lr, device=device)
    optimizer = adamw(bench, fused=True, capturable=True, lr=lr)
    compute = torch.compile(lambda x, y: work.loss_of(model(x), y))
    loader = work.make_loader(case, device, bench.num_batches)
    still_x, still_y = (tensor.to(device) for tensor in loader.dataset[0])
    still_x = still_x.contiguous(memory_format=form)

    def step() -> None:
        optimizer.zero_grad()
        with work.autocast(case, device):
            loss = compute(still_x, still_y)
        loss.backward()
        optimizer.step()

    before = copy.deepcopy(model.state_dict())
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    _restore(model, optimizer, before)
    del before
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad()
    with torch.cuda.graph(graph):
        step()
    for x, y in loader:
        watch.tick()
        still_x.copy_(x, non_blocking=True)
        still_y.copy_(y, non_blocking=True)
        graph.replay()


@torch.no_grad()
def _restore(model: nn.Module, optimizer: torch.optim.Optimizer, before: dict[str, Tensor]) -> None:
    """Undo the steps that warmed up, without moving any tensor."""
    for name, tensor in model.state_dict().items():
        tensor.copy_(before[name])
    for state in optimizer.state.values():
        for tensor in state.values():
            tensor.zero_()


# -- peers


def lightning(bench: Bench) -> None:
    """Lightning with everything off that can be switched off."""
    try:
        import lightning as pl
    except ImportError:
        import pytorch_lightning as pl

    watch, model = bench.watch, bench.model

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Batch, index: int) -> Tensor:
            watch.tick()
            x, y = batch
            return work.loss_of(self.model(x), y)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return adamw(bench)

    trainer = pl.Trainer(
        accelerator="gpu" if bench.device.type == "cuda" else "cpu",
        devices=1,
        precision="bf16-mixed" if bench.case.is_bf16 else "32-true",
        max_steps=bench.num_batches,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(bench.scratch),
    )
    trainer.fit(Module(), work.make_loader(bench.case, bench.device, bench.num_batches))


def fabric(bench: Bench) -> None:
    """The loop by hand on Lightning Fabric."""
    try:
        from lightning.fabric import Fabric
    except ImportError:
        from lightning_fabric import Fabric

    owner = Fabric(
        accelerator="gpu" if bench.device.type == "cuda" else "cpu",
        devices=1,
        precision="bf16-mixed" if bench.case.is_bf16 else "32-true",
    )
    model, optimizer = owner.setup(bench.model, adamw(bench))
    loader = work.make_loader(bench.case, bench.device, bench.num_batches)
    for x, y in owner.setup_dataloaders(loader):
        bench.watch.tick()
        loss = work.loss_of(model(x), y)
        optimizer.zero_grad()
        owner.backward(loss)
        optimizer.step()


def accelerate(bench: Bench) -> None:
    """The loop by hand on Accelerate."""
    from accelerate import Accelerator

    owner = Accelerator(
        mixed_precision="bf16" if bench.case.is_bf16 else "no", cpu=bench.device.type == "cpu"
    )
    loader = work.make_loader(bench.case, bench.device, bench.num_batches)
    model, optimizer, loader = owner.prepare(bench.model, adamw(bench), loader)
    for x, y in loader:
        bench.watch.tick()
        loss = work.loss_of(model(x), y)
        optimizer.zero_grad()
        owner.backward(loss)
        optimizer.step()


def transformers(bench: Bench) -> None:
    """The Trainer of transformers, with the same optimizer and no clipping."""
    from transformers import Trainer, TrainingArguments

    watch = bench.watch
    loader = work.make_loader(bench.case, bench.device, bench.num_batches, named=True)

    class Measured(Trainer):
        def get_train_dataloader(self) -> DataLoader[Batch]:
            return self.accelerator.prepare(loader)

        def compute_loss(self, model: nn.Module, inputs: Batch, *_: Option, **__: Option) -> Tensor:
            watch.tick()
            return work.loss_of(model(inputs["x"]), inputs["y"])

    options = TrainingArguments(
        output_dir=str(bench.scratch),
        max_steps=bench.num_batches,
        bf16=bench.case.is_bf16,
        use_cpu=bench.device.type == "cpu",
        per_device_train_batch_size=bench.case.batch,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    optimizer = adamw(bench)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    trainer = Measured(
        model=bench.model,
        args=options,
        train_dataset=loader.dataset,
        optimizers=(optimizer, constant),
    )
    trainer.train()


# -- Epochal


def epochal(
    bench: Bench, *, step: str, feed: str = "", channels_last: bool = False, **engine: Option
) -> None:
    """Epochal, the whole of it: time is taken by a function at ``step_end``."""
    import epochal as ep

    case, watch = bench.case, bench.watch
    is_long = step == "auto" and not bench.is_quick

    class Work(ep.Task):
        def __init__(self) -> None:
            self.train_loader = epochal_loader(bench, feed or _usual_feed(case))

        def batch_forward(self, model: nn.Module, batch: Batch) -> Tensor:
            return model(batch[0])

        def batch_loss(self, out: Tensor, batch: Batch) -> dict[str, tuple[Tensor, int]]:
            return {"loss": (work.loss_of(out, batch[1]), len(batch[0]))}

    settled = Settled(case, is_waiting=is_long)

    def measure(run: ep.Run) -> None:
        watch.mark(run.step)
        settled.look(run)
        if run.step % case.steps == 0 and settled.is_over(run):
            watch.finish(run.step)
            watch.result["choices"] = dict(run.choices)
            run.stop("measured")

    def attend(run: ep.Run) -> None:
        # As the engine adds what it does itself: a hook's function would be taken for code that
        # may have changed something, and be followed by a look at all that a graph froze.
        run.plan.add_once("first step", ep.Every.parse("1st"), lambda _: watch.first())
        run.plan.add_period("measure", ep.Every.parse(f"{case.block}st"), measure)

    result = ep.Experiment(
        task=Work(),
        model=bench.model,
        optim={"type": "AdamW", "lr": case.lr, "weight_decay": WEIGHT_DECAY},
        train={"for": f"{LONG[case.name] if is_long else case.steps}st", "eval_every": 0},
        engine={
            "step": step,
            "precision": "bf16" if case.is_bf16 else "fp32",
            "channels_last": channels_last,
            **engine,
        },
        log={"console_every": 0, "record_every": 0},
        hooks=[attend],
        choices={"device": str(bench.device), "no_file": True, "raise_errors": True},
    ).fit()
    watch.result["status"] = result.status


class Settled:
    """Knows whether the blocks just timed all had the step that was chosen in the end.

    Args:
        case: Says how many steps that takes.
        is_waiting: Whether the run is long enough to be compiled, which is decided late.
    """

    def __init__(self, case: work.Case, *, is_waiting: bool) -> None:
        self._needed = (work.BLOCKS + 1) * case.block if is_waiting else 0
        self._is_waiting = is_waiting
        self._begun = time.perf_counter()
        self._seen: dict[str, object] = {}
        self._since = 0

    def look(self, run: ep.Run) -> None:
        """Note the choices that are in force after this step."""
        if run.choices != self._seen:
            self._seen, self._since = dict(run.choices), run.step

    def is_over(self, run: ep.Run) -> bool:
        """Whether the choice is final and was the same for all timed blocks."""
        is_final = (
            not self._is_waiting
            or "compile_saves" in self._seen
            or self._seen.get("step") == "eager"
            or time.perf_counter() - self._begun > PATIENCE
        )
        return is_final and run.step - self._since >= self._needed


def _usual_feed(case: work.Case) -> str:
    return "tensors" if case.name == "tiny" else "batches"


def epochal_loader(bench: Bench, feed: str) -> DataLoader[Batch]:
    """Batches for Epochal: ready ones as for all others, or gathered from tensors."""
    import epochal as ep

    case = bench.case
    if feed == "batches":
        return work.make_loader(case, bench.device, LONG[case.name])
    tensors = ep.data.Tensors(*work.make_tensors(case), resident=feed == "resident")
    return tensors.loader(batch_size=case.batch)


# -- one process

Contender = Callable[[Bench], None]


def _with(function: Callable[..., None], **options: Option) -> Contender:
    return lambda bench: function(bench, **options)


CONTENDERS: dict[str, Contender] = {
    "hand": _with(hand, is_reference=True),
    "hand-samples": _with(hand, samples=True),
    "hand-fused": hand_fused,
    "hand-compile": _with(hand, compiled=True, fused=True),
    "hand-captured": hand_captured,
    "lightning": lightning,
    "fabric": fabric,
    "accelerate": accelerate,
    "transformers": transformers,
    "epochal-eager": _with(epochal, step="eager"),
    "epochal-graph": _with(epochal, step="graph"),
    "epochal-compile": _with(epochal, step="compile"),
    "epochal-auto": _with(epochal, step="auto"),
    "epochal-auto-batches": _with(epochal, step="auto", feed="batches"),
    "epochal-auto-resident": _with(epochal, step="auto", feed="resident"),
    "epochal-auto-last": _with(epochal, step="auto", channels_last=True),
}


def main() -> None:
    """Run one contender and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=list(work.CASES), required=True)
    parser.add_argument("--contender", choices=list(CONTENDERS), required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--begun", type=float, default=BEGUN)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    words = parser.parse_args()
    case, device = work.get_case(words.case, quick=words.quick), torch.device(words.device)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    model = work.make_model(case, device)
    watch = work.Watch(case, device, model, words.begun)
    bench = Bench(
        case=case,
        device=device,
        model=model,
        watch=watch,
        scratch=words.scratch,
        is_quick=words.quick,
    )
    CONTENDERS[words.contender](bench)
    watch.result |= {"versions": _versions(device), "tolerance": case.tolerance}
    words.out.write_text(json.dumps(watch.result), encoding="utf-8")


def _versions(device: torch.device) -> dict[str, str]:
    found = {"python": sys.version.split()[0], "torch": torch.__version__}
    if device.type == "cuda":
        found |= {"device": torch.cuda.get_device_name(device), "cuda": str(torch.version.cuda)}
    for name in ("lightning", "accelerate", "transformers", "triton"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()
