"""Layers that models can be made of: ``ep.nn``."""

from epochal.components.nn.stochastic_depth import StochasticDepth as StochasticDepth
