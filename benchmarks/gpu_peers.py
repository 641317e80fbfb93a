"""Other frameworks in the GPU benchmark, each imported only when it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

import gpu_work as work

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def lightning(bench: work.Bench) -> None:
    """Lightning with every optional feature off."""
    try:
        import lightning as pl
    except ImportError:
        import pytorch_lightning as pl

    watch, model = bench.watch, bench.model

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: work.Batch, index: int) -> Tensor:
            watch.tick()
            x, y = batch
            return work.loss_of(self.model(x), y)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return work.adamw(bench)

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


def fabric(bench: work.Bench) -> None:
    """The hand-written loop on Lightning Fabric."""
    try:
        from lightning.fabric import Fabric
    except ImportError:
        from lightning_fabric import Fabric

    owner = Fabric(
        accelerator="gpu" if bench.device.type == "cuda" else "cpu",
        devices=1,
        precision="bf16-mixed" if bench.case.is_bf16 else "32-true",
    )
    model, optimizer = owner.setup(bench.model, work.adamw(bench))
    loader = work.make_loader(bench.case, bench.device, bench.num_batches)
    for x, y in owner.setup_dataloaders(loader):
        bench.watch.tick()
        loss = work.loss_of(model(x), y)
        optimizer.zero_grad()
        owner.backward(loss)
        optimizer.step()


def accelerate(bench: work.Bench) -> None:
    """The hand-written loop on Accelerate."""
    from accelerate import Accelerator

    owner = Accelerator(
        mixed_precision="bf16" if bench.case.is_bf16 else "no", cpu=bench.device.type == "cpu"
    )
    loader = work.make_loader(bench.case, bench.device, bench.num_batches)
    model, optimizer, loader = owner.prepare(bench.model, work.adamw(bench), loader)
    for x, y in loader:
        bench.watch.tick()
        loss = work.loss_of(model(x), y)
        optimizer.zero_grad()
        owner.backward(loss)
        optimizer.step()


def transformers(bench: work.Bench) -> None:
    """The Trainer of transformers, with the same optimizer and no clipping."""
    from transformers import Trainer, TrainingArguments

    watch = bench.watch
    loader = work.make_loader(bench.case, bench.device, bench.num_batches, named=True)

    class Measured(Trainer):
        def get_train_dataloader(self) -> DataLoader[work.Batch]:
            return self.accelerator.prepare(loader)

        def compute_loss(
            self, model: nn.Module, inputs: work.Batch, *_: work.Option, **__: work.Option
        ) -> Tensor:
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
    optimizer = work.adamw(bench)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    trainer = Measured(
        model=bench.model,
        args=options,
        train_dataset=loader.dataset,
        optimizers=(optimizer, constant),
    )
    trainer.train()
