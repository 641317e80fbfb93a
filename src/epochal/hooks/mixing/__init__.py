"""Mixup and CutMix: training samples mixed from two, with soft targets."""

from epochal.hooks.mixing.cutmix import CutMix as CutMix
from epochal.hooks.mixing.mixup import Mixup as Mixup
