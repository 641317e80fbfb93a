"""Converts the metrics of a run to a DataFrame of pandas or Polars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from epochal.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.records.metrics.points import Points

Library = Literal["pandas", "polars"]


def to_dataframe(points: Points, names: Sequence[str], library: Library) -> Any:  # noqa: ANN401 - of that library
    """A DataFrame with one row per step and one column per metric.

    Args:
        points: The points of the run.
        names: The metrics; empty for all.
        library: The library of the DataFrame.
    """
    import numpy as np

    names = names or sorted(set(points.names.values()))
    curves = {name: points.series(name) for name in names}
    steps = np.unique(np.concatenate([np.empty(0, np.int64), *(one[0] for one in curves.values())]))
    columns, missing = {}, {}
    for name, (own, values) in curves.items():
        places = np.searchsorted(steps, own)
        columns[name] = np.full(len(steps), np.nan)
        columns[name][places] = values
        missing[name] = np.ones(len(steps), bool)
        missing[name][places] = False
    if library == "pandas":
        return _require(library).DataFrame({"step": steps, **columns})
    polars = _require(library)
    frame = polars.DataFrame({"step": steps, **columns})
    holes = [
        polars.when(polars.Series(where)).then(None).otherwise(polars.col(name)).alias(name)
        for name, where in missing.items()
    ]
    return frame.with_columns(holes)


def _require(library: Library) -> Any:  # noqa: ANN401 - a module
    try:
        if library == "pandas":
            import pandas  # type: ignore[import-untyped]  # its stubs are a separate package

            return pandas
        import polars
    except ImportError as error:
        raise RecordError(
            f"{library}: is not installed\n  pip install {library}, or use .series(name) for numpy"
        ) from error
    return polars
