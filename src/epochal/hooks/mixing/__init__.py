"""Mixing: training batches whose samples are made of two, with targets that say so."""

from epochal.hooks.mixing.cutmix import CutMix as CutMix
from epochal.hooks.mixing.mixup import Mixup as Mixup
