"""Why a process failed, as it is reported to the other processes of its run."""

from __future__ import annotations

import json
import re
import traceback
from dataclasses import asdict, dataclass
from typing import final

from torch import distributed

from epochal.errors import RANK_LOST_EXIT_CODE, EpochalError

_LOST_CONNECTION = re.compile(r"/gloo/|connection (closed|reset) by peer", re.IGNORECASE)


@final
@dataclass(frozen=True, kw_only=True)
class FailureReport:
    """The error of one process."""

    rank: int
    exception_type: str
    message: str
    traceback: str
    exit_code: int = 1
    reason: str = "exception"

    def to_text(self) -> str:
        """The report for the store."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> FailureReport:
        """What ``to_text`` wrote."""
        return cls(**json.loads(text))


def describe_message(error: BaseException) -> str:
    """The message of an error; that of SystemExit alone would only be a number."""
    if isinstance(error, SystemExit):
        return f"the code called sys.exit({'' if error.code is None else repr(error.code)})"
    return str(error)


def report_error(error: BaseException, rank: int, *, exit_code: int, reason: str) -> FailureReport:
    """The report of an error of this process."""
    return FailureReport(
        rank=rank,
        exception_type=type(error).__name__,
        message=describe_message(error),
        traceback="".join(traceback.format_exception(error)),
        exit_code=exit_code,
        reason=reason,
    )


class RankFailedError(EpochalError):
    """Another process of the run failed first."""

    def __init__(self, report: FailureReport) -> None:
        super().__init__(f"rank {report.rank}: {report.exception_type}: {report.message}")
        self.report = report


class RankLostError(EpochalError):
    """Another process of the run ended without a message: it or its machine was killed."""

    exit_code = RANK_LOST_EXIT_CODE

    def __init__(self, cause: str) -> None:
        super().__init__(
            "another process of this run ended without a message: it was killed, or its machine "
            f"is gone\n  {cause}"
        )

    @classmethod
    def of_rank(cls, rank: int) -> RankLostError:
        """The error about a process of this machine."""
        return cls(f"rank {rank} does not exist any more")

    @classmethod
    def of_store(cls, error: Exception) -> RankLostError:
        """The error about the process with the store: the launcher, or the main process."""
        first = (str(error).splitlines() or [type(error).__name__])[0]
        return cls(f"the process that started this one cannot be reached: {first}")


def is_lost_connection(error: BaseException) -> bool:
    """Whether an error may only be a consequence of the death of another process."""
    kinds = tuple(
        getattr(distributed, name)
        for name in ("DistBackendError", "DistNetworkError", "DistStoreError")
        if hasattr(distributed, name)
    )
    if isinstance(error, kinds):
        return True
    return isinstance(error, RuntimeError) and bool(_LOST_CONNECTION.search(str(error)))
