"""Splits the training data of a task into the loaders of one fold."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from epochal.components.data.folds import split_loader
from epochal.engine.device.seeding import derive_seed
from epochal.engine.feed.feed import read_task_attribute
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from epochal.engine import Task
    from epochal.experiment.build.assembly import Assembly

logger = logging.getLogger(__name__)


def set_fold_loaders(assembly: Assembly, task: Task) -> None:
    """Replace a task's loaders by those of a fold, if the config sets ``train.folds``.

    Without ``train.fold``, as in a plan, it is the first fold.

    Raises:
        ConfigError: The data cannot be split into these folds.
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
