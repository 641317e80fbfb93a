"""What the steps of a run do in detail: torch's profiler, a trace and a table."""

from epochal.hooks.profiler.profiling import Profiler
from epochal.hooks.profiler.summary import Operator, Profile, operator_lines

__all__ = ["Operator", "Profile", "Profiler", "operator_lines"]
