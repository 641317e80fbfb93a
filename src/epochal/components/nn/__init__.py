"""Layers for models: ``ep.nn``."""

from epochal.components.nn.stochastic_depth import StochasticDepth as StochasticDepth
