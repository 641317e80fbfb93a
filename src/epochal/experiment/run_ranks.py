"""Runs an experiment in several processes, and starts them again when one was killed."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from epochal.distributed.environment import LAUNCHED_VARIABLE, read_rank_environment
from epochal.distributed.rank_failure import RANK_LOST_EXIT_CODE
from epochal.engine.execute import RANK_LOST, result_of_error
from epochal.errors import EpochalError, RecordError
from epochal.experiment.build.device import choose_device, count_ranks, refuse_debugging_all
from epochal.experiment.config.check_file import CheckedConfig
from epochal.experiment.record.failure import show_failure
from epochal.experiment.record.post_mortem import describe_input
from epochal.experiment.resume.resume_plan import is_evaluation
from epochal.launch.restart_policy import STALLED, ProcessExit, RestartDecision, RestartPolicy
from epochal.launch.supervisor import send_final_mail
from epochal.records.find import find_record
from epochal.records.folder import redacted as clean
from epochal.records.folder.checkpoint_manifests import find_newest_checkpoint
from epochal.records.folder.folder import JOB_RUN_FILE_VARIABLE, RUN_FILE_VARIABLE
from epochal.records.folder.reader import step_of
from epochal.records.layout.process import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from epochal.distributed.elastic import GroupEnd, StartMethod
    from epochal.engine import RunResult
    from epochal.experiment.config.choices import Choices

    RunRank = Callable[[Any, Sequence[str], Choices], Any]

_RESTARTS = 10
_OWN_CHOICES = ("nproc", "restarts")


def wants_ranks(choices: Choices) -> bool:
    """Whether to start several processes; not in one that is such a process itself."""
    place = read_rank_environment()
    count = count_ranks(choices) if place is None else place.world_size
    refuse_debugging_all(choices, count)
    return count > 1 and place is None


def run_ranks(
    run_rank: RunRank, source: object, overrides: Sequence[str], choices: Choices
) -> RunResult:
    """The result of a run in several processes.

    If one of them is killed or hangs, all are started again from the newest checkpoint. An error
    ends them all, and is shown once.

    Args:
        run_rank: Runs the experiment in each of them; can be imported.
        source: The config.
        overrides: Changes to it.
        choices: For this run; ``nproc`` or several devices say how many processes there are.
    """
    from epochal.distributed.elastic import launch_ranks  # imports torch's launcher

    nproc, method = count_ranks(choices), _choose_start_method(choices)
    debug_rank = choices.get("debug_rank")
    variables = {} if debug_rank is None else describe_input()
    policy = RestartPolicy(choices.get("restarts", _RESTARTS) if debug_rank is None else 0)
    rest: dict[str, Any] = {k: v for k, v in choices.items() if k not in _OWN_CHOICES}
    if isinstance(source, CheckedConfig) and method == "spawn":  # it would have to be pickled
        rest["variant"], source = source.config.variant, source.config.path

    def launch(file: Path) -> GroupEnd:
        return launch_ranks(
            run_rank,
            source,
            overrides,
            cast("Choices", rest),
            nproc=nproc,
            start_method=method,
            environment={RUN_FILE_VARIABLE: str(file), LAUNCHED_VARIABLE: "1", **variables},
            terminal_rank=debug_rank,
            has_own_groups=not is_job,
        )

    is_job = JOB_RUN_FILE_VARIABLE in os.environ  # a pool kills its process group
    with _run_file() as (file, is_supervised):
        while True:
            before = _saved_step(_read_run(file))
            end = launch(file)
            folder = _read_run(file)
            if end.failed_rank is None:
                return _send_mail(end.values[0], folder, is_supervised=is_supervised)
            died = _describe_exit(end, folder, before)
            decision = _decide(policy, died)
            if not decision.should_restart:
                result = _lost_result(end, died, decision, folder)
                show_failure(result)
                return _send_mail(result, folder, decision, is_supervised=is_supervised)
            what = f"rank {end.failed_rank} {died}; {decision.why}"
            print(what, file=sys.stderr, flush=True)  # noqa: T201 - for users
            _add_event(folder, end, died, decision.why)
            time.sleep(decision.delay_seconds)
            if folder is not None and not is_evaluation(folder):
                rest["resume"] = folder
            rest["begun"] = None


def _send_mail(
    result: RunResult,
    folder: Path | None,
    decision: RestartDecision | None = None,
    *,
    is_supervised: bool,
) -> RunResult:
    """Mail about a run that failed, which its main process leaves to this one."""
    if not is_supervised and not result.ok:
        end = ProcessExit(code=result.exit_code)
        send_final_mail(folder, end, decision or RestartDecision(False), lambda: None)
    return result


def _to_exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code


def _choose_start_method(choices: Choices) -> StartMethod:
    """Forking is fast, but only works if this process has done nothing yet, and without CUDA."""
    can_fork = choices.get("can_fork", False) and hasattr(os, "fork")
    return "fork" if can_fork and choose_device(choices).type == "cpu" else "spawn"


def _decide(policy: RestartPolicy, died: ProcessExit) -> RestartDecision:
    """Restart what was killed or hung; an error would come again."""
    if died.code < 0 or died.code in (STALLED, RANK_LOST_EXIT_CODE):
        return policy.decide(died)
    return RestartDecision(False, "another start would not change that")


def _describe_exit(end: GroupEnd, folder: Path | None, before: int) -> ProcessExit:
    record = None if folder is None else find_record(folder)
    saved = _saved_step(folder)
    step = 0 if record is None else step_of(record)
    return ProcessExit(code=end.code, step=max(step, saved), first_step=before, saved_step=saved)


def _lost_result(
    end: GroupEnd, died: ProcessExit, decision: RestartDecision, folder: Path | None
) -> RunResult:
    what = f"rank {end.failed_rank} {died}"
    if decision.has_given_up:
        what = f"{what}; given up, since {decision.why}"
    result = result_of_error(RecordError(what), dir=folder)
    return replace(
        result,
        exception_type="RankLostError",
        reason=RANK_LOST,
        rank=end.failed_rank,
        exit_code=_to_exit_code(end.code),
        steps=died.step,
    )


@contextmanager
def _run_file() -> Iterator[tuple[Path, bool]]:
    """The file in which the main process writes its folder; a supervisor may have one already."""
    given = os.environ.get(RUN_FILE_VARIABLE)
    if given:
        yield Path(given), True
        return
    with tempfile.TemporaryDirectory(prefix="epochal-ranks-") as folder:
        yield Path(folder) / "run", False


def _read_run(file: Path) -> Path | None:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return Path(text) if text else None


def _saved_step(folder: Path | None) -> int:
    found = None if folder is None else find_newest_checkpoint(folder / "checkpoints")[0]
    return 0 if found is None else found.step


def _add_event(folder: Path | None, end: GroupEnd, died: ProcessExit, why: str) -> None:
    if folder is not None:
        event = {"time": utc_now(), "kind": "restart", "step": died.step, "code": end.code}
        event |= {"rank": end.failed_rank, "why": why}
        with suppress(OSError, EpochalError):
            clean.append_line(folder / "events.jsonl", event)
