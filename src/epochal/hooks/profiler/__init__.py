"""Profiles steps with torch's profiler: a trace and a table of operators."""

from epochal.hooks.profiler.profile_summary import Operator, Profile, operator_lines
from epochal.hooks.profiler.torch_profiler import Profiler

__all__ = ["Operator", "Profile", "Profiler", "operator_lines"]
