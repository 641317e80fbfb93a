"""Config files read into one frozen tree; every value knows its file, line and column."""

from epochal.config.bounds import Above, AtLeast, AtMost, Below
from epochal.config.condition import parse_condition
from epochal.config.duration import Duration, parse_duration
from epochal.config.load import Config, load, load_variants
from epochal.config.node import Node, from_plain
from epochal.config.source_file import FrozenSource, freeze_source
from epochal.config.write import dump

__all__ = [
    "Above",
    "AtLeast",
    "AtMost",
    "Below",
    "Config",
    "Duration",
    "FrozenSource",
    "Node",
    "dump",
    "freeze_source",
    "from_plain",
    "load",
    "load_variants",
    "parse_condition",
    "parse_duration",
]
