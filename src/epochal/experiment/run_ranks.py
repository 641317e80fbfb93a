"""Runs an experiment in several processes, and starts them again when one was killed."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from epochal import durable
from epochal.distributed.environment import LAUNCHED_VARIABLE, read_rank_environment
from epochal.engine.execute import RANK_LOST, result_of_error
from epochal.errors import (
    RANK_LOST_EXIT_CODE,
    STALLED_EXIT_CODE,
    ConfigError,
    EpochalError,
    Preempted,
    Problem,
    RecordError,
)
from epochal.experiment.build.device import (
    choose_device,
    count_nodes,
    count_ranks,
    refuse_debugging_all,
    refuse_too_many_processes,
)
from epochal.experiment.config.check_file import CheckedConfig
from epochal.experiment.record.failure import show_failure
from epochal.experiment.record.post_mortem import describe_input
from epochal.experiment.resume.resume_plan import is_evaluation
from epochal.launch.restart_policy import (
    DEFAULT_RESTARTS,
    ProcessExit,
    RestartDecision,
    RestartPolicy,
)
from epochal.launch.supervisor import send_final_mail
from epochal.records.find import find_record
from epochal.records.folder import redacted
from epochal.records.folder.checkpoint_manifests import find_newest_checkpoint
from epochal.records.folder.folder import CHECKPOINTS_DIR, JOB_RUN_FILE_VARIABLE, RUN_FILE_VARIABLE
from epochal.records.folder.reader import step_of
from epochal.records.layout.lease import LEASE_FILE, is_owner_alive
from epochal.records.layout.process import utc_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from epochal.distributed.elastic import GroupEnd, StartMethod
    from epochal.engine import RunResult
    from epochal.experiment.config.choices import Choices
    from epochal.records import RunRecord

    RunRank = Callable[[Any, Sequence[str], Choices], Any]

_SCRIPT_EXIT_CODE = 64
"""Of a process that would start the run again, since it imports the script that started it."""

_LAUNCH_CHOICES = ("nproc", "nnodes", "rdzv_endpoint", "restarts")
_POLL_SECONDS = 0.2


def refuse_second_start() -> None:
    """End a process of a run that is about to start runs itself: it imports the user's script.

    Before such a process does its work, Python imports the script that started it.
    """
    is_importing = getattr(multiprocessing.current_process(), "_inheriting", False)
    if is_importing and LAUNCHED_VARIABLE in os.environ:
        raise SystemExit(_SCRIPT_EXIT_CODE)


def wants_ranks(choices: Choices) -> bool:
    """Whether to start several processes; not in one that is such a process itself."""
    place = read_rank_environment()
    count = count_ranks(choices) if place is None else place.world_size
    num_nodes = count_nodes(choices)[1]
    refuse_debugging_all(choices, count * num_nodes)
    if place is not None or (count == 1 and num_nodes == 1):
        return False
    refuse_too_many_processes(choices)
    return True


def run_ranks(
    run_rank: RunRank, source: object, overrides: Sequence[str], choices: Choices
) -> RunResult:
    """The result of a run in several processes, maybe on several machines.

    If one of them is killed or hangs, all are started again from the newest checkpoint. An error
    ends them all, and is shown once.

    Args:
        run_rank: Runs the experiment in each of them; can be imported.
        source: The config.
        overrides: Changes to it.
        choices: For this run; ``nproc`` or several devices say how many processes there are.

    Raises:
        ConfigError: Other machines cannot be reached, or have other code; or the script that called
            this starts the run again when it is imported.
        NodesLostError: The connection to them was lost.
    """
    from epochal.distributed.elastic import launch_ranks  # imports torch's launcher
    from epochal.experiment.build.join_nodes import join_chosen_nodes

    nproc, method = count_ranks(choices), _choose_start_method(choices)
    debug_rank = choices.get("debug_rank")
    variables = {} if debug_rank is None else describe_input()
    policy = RestartPolicy(choices.get("restarts", DEFAULT_RESTARTS) if debug_rank is None else 0)
    rest: dict[str, Any] = {k: v for k, v in choices.items() if k not in _LAUNCH_CHOICES}
    nodes = join_chosen_nodes(source, overrides, choices, _tell)
    if isinstance(source, CheckedConfig) and method == "spawn":  # it would have to be pickled
        rest["variant"], source = source.config.variant, source.config.path

    def ends_run(result: RunResult | None) -> bool:
        """False if another machine is preempted and this one can continue."""
        return result is None or result.status != "preempted" or not nodes.is_elastic

    def launch(file: Path) -> GroupEnd:
        return launch_ranks(
            run_rank,
            source,
            overrides,
            cast("Choices", rest),
            nproc=nproc,
            start_method=method,
            environment={RUN_FILE_VARIABLE: str(file), LAUNCHED_VARIABLE: "1", **variables},
            nodes=nodes,
            ends_run=ends_run,
            terminal_rank=debug_rank,
            has_own_groups=not is_job,
        )

    is_job = JOB_RUN_FILE_VARIABLE in os.environ  # a pool kills its process group
    with _run_file() as (file, is_supervised):
        nodes.read_run = lambda: str(_read_run(file) or "")
        while True:
            agreed = nodes.begin_round()
            if agreed and not is_evaluation(Path(agreed)):
                rest["resume"] = _wait_for_lease(Path(agreed))
            before = _saved_step(Path(agreed) if agreed else _read_run(file))
            end = launch(file)
            rest["begun"] = None
            nodes.publish_run()
            folder = _read_run(file) or nodes.find_run()
            if end.is_closed and not end.was_signalled:
                if not nodes.wait_for_round():
                    return _unused_node_result()
                continue
            result = next((one for one in end.values.values() if one is not None), None)
            if not end.was_signalled and (end.has_new_nodes or not ends_run(result)):
                _tell("machines have joined or left; starting again from the newest checkpoint")
                nodes.end_round()
                continue
            if result is not None:
                if ends_run(result):
                    nodes.leave()
                return _report(result, folder, end, is_supervised=is_supervised)
            if end.failed_rank is None:
                raise Preempted
            if end.code == _SCRIPT_EXIT_CODE and method == "spawn":
                raise ConfigError(_describe_script())
            died = _describe_exit(end, folder, before)
            decision = _decide(policy, died)
            if not decision.should_restart:
                nodes.leave()
                result = _lost_result(end, died, decision, folder)
                show_failure(result)
                return _send_mail(result, folder, decision, is_supervised=is_supervised)
            _tell(f"rank {end.failed_rank} {died}; {decision.why}")
            if end.has_main:
                _add_event(folder, end, died, decision.why)
            time.sleep(decision.delay_seconds)
            nodes.end_round()


def _describe_script() -> Problem:
    file = getattr(sys.modules["__main__"], "__file__", None)
    name = "the script" if file is None else Path(file).name
    what = f"each process imports {name}, which then starts the run again"
    return Problem(
        "nproc", what, hint='write `if __name__ == "__main__":` above the line that starts it'
    )


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - for users


def _wait_for_lease(folder: Path) -> Path:
    """Wait until the process on a lost machine has no lease or recent heartbeat."""
    has_told = False
    while is_owner_alive(folder, owner := durable.find_object(folder / LEASE_FILE)):
        if not has_told:
            has_told = True
            _tell(f"waiting until process {owner.get('pid')} on {owner.get('host')} has ended")
        time.sleep(_POLL_SECONDS)
    return folder


def _unused_node_result() -> RunResult:
    """The result on a spare machine, if the run ended without it."""
    from epochal.engine import RunResult

    what = "the run has ended on the other machines; this one was not needed"
    _tell(what)
    return RunResult(status="stopped", reason="not_needed", message=what)


def _report(
    result: RunResult, folder: Path | None, end: GroupEnd, *, is_supervised: bool
) -> RunResult:
    """The result, shown on this machine too unless the main process ran here."""
    if end.has_main:
        return _send_mail(result, folder, is_supervised=is_supervised)
    _tell(f"the run has ended: {result.status} ({result.reason}); its record is {folder}")
    return replace(result, dir=None)


def _send_mail(
    result: RunResult,
    folder: Path | None,
    decision: RestartDecision | None = None,
    *,
    is_supervised: bool,
) -> RunResult:
    """Mail about a failed run on behalf of its main process."""
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
    """Restart after a kill or a hang, not after an error, which would repeat."""
    if died.code < 0 or died.code in (STALLED_EXIT_CODE, RANK_LOST_EXIT_CODE):
        return policy.decide(died)
    return RestartDecision(False, "a restart would not change that")


def _describe_exit(end: GroupEnd, folder: Path | None, before: int) -> ProcessExit:
    record = None if folder is None else find_record(folder)
    saved = _saved_step(folder)
    step = 0 if record is None else step_of(record)
    return ProcessExit(
        code=end.code,
        step=max(step, saved),
        first_step=before,
        saved_step=saved,
        error=_find_stalled_rank(record) if end.code == STALLED_EXIT_CODE else "",
    )


def _find_stalled_rank(record: RunRecord | None) -> str:
    """The rank that the others waited for in the last hang, from the event of the watchdog."""
    events = [] if record is None else record.events
    return next((str(one.get("ranks", "")) for one in events[::-1] if one["kind"] == "hang"), "")


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
    found = None if folder is None else find_newest_checkpoint(folder / CHECKPOINTS_DIR)[0]
    return 0 if found is None else found.step


def _add_event(folder: Path | None, end: GroupEnd, died: ProcessExit, why: str) -> None:
    if folder is not None:
        event = {"time": utc_now(), "kind": "restart", "step": died.step, "code": end.code}
        event |= {"rank": end.failed_rank, "why": why}
        with suppress(OSError, EpochalError):
            redacted.append_line(folder / "events.jsonl", event)
