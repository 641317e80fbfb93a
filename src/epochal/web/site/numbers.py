"""Numbers for JSON, which has no NaN: text in tables, gaps in curves."""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def to_json_value(value: object) -> object:
    """A value of a table; NaN and infinities as the texts ``nan``, ``inf`` and ``-inf``."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def to_json_numbers(values: NDArray[np.float64] | NDArray[np.int64]) -> list[float | None]:
    """The values of a curve; None for NaN and infinities."""
    import numpy as np

    found: list[float | None] = values.tolist()
    for place in np.flatnonzero(~np.isfinite(values)).tolist():
        found[place] = None
    return found


def pack_numbers(values: NDArray[np.float64] | NDArray[np.int64]) -> str:
    """The same for browsers, which read it many times faster: 64-bit floats in base64."""
    import numpy as np

    found = np.where(np.isfinite(values), values, np.nan).astype("<f8")
    return base64.b64encode(found.tobytes()).decode()
