"""The error that a request is answered with, and the form of all errors."""

from __future__ import annotations

from typing import final

from epochal.errors import ConfigError, EpochalError


@final
class ApiError(Exception):
    """Ends a request with a status, what is wrong, and what to do."""

    def __init__(self, status: int, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.status, self.what, self.hint = status, what, hint

    def to_json(self) -> dict[str, object]:
        """The body of the answer."""
        return {"error": {"what": self.what, "hint": self.hint}}


def not_found() -> ApiError:
    """The same answer for what does not exist and for what must not be known."""
    return ApiError(404, "not found", "it may have been deleted; go back to the list of runs")


def to_api_error(error: EpochalError, status: int = 409) -> ApiError:
    """The answer for an error that a user can fix."""
    if isinstance(error, ConfigError) and error.problems:
        first = error.problems[0]
        return ApiError(422, f"{first.key}: {first.what}", first.hint)
    what, _, hint = str(error).partition("\n")
    return ApiError(status, what, hint.strip())
