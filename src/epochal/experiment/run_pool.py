"""Runs several configs at once, each in its own process, and returns their results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochal import durable
from epochal.config import load
from epochal.engine import RunResult
from epochal.errors import ConfigError, Problem, RecordError
from epochal.experiment.config.check_file import (
    CheckedConfig,
    check_config,
    check_file,
    drop_sections,
    find_blocking_problems,
)
from epochal.experiment.config.choices import to_overrides
from epochal.experiment.config.freeze_jobs import freeze_configs
from epochal.experiment.record.past_result import read_result
from epochal.launch.pool.devices import DeviceLeases, DeviceRequest, parse_devices
from epochal.launch.pool.local_executor import JOB_IMPORTS, LocalExecutor
from epochal.launch.pool.run_jobs import run_jobs
from epochal.records.find import read_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from epochal.experiment.config.choices import Choices
    from epochal.launch.pool.backlog import JobEnd

_COMMAND = "ep.run(...)"


def run_in_pool(
    sources: Sequence[object],
    *,
    overrides: Sequence[str],
    choices: Choices,
    devices: str | int | Sequence[str | int] | None,
    per_device: int | None,
) -> list[RunResult]:
    """The results of configs in their order; every config is checked before the first starts.

    Raises:
        ConfigError: A config has mistakes, or there is no such device.
    """
    configs: list[CheckedConfig] = []
    values: dict[int, Mapping[str, Any]] = {}
    for source in sources:
        if isinstance(source, str | Path):
            found = check_file(Path(source), overrides, choices)
            if found.problems:
                raise ConfigError(*found.problems)
            configs += found.checked
        else:
            plain = _to_values(source)
            values[len(configs)] = plain
            configs.append(_check_values(plain, overrides, choices))
    num = 1 if per_device is None else per_device
    named = [devices] if isinstance(devices, int) else devices
    leases = DeviceLeases(parse_devices(named, per_device=num), per_device=num)
    misfit = leases.find_misfit(DeviceRequest(num_processes=choices.get("nproc") or 1))
    if misfit:
        raise ConfigError(Problem("nproc", f"each run {misfit}", hint="devices=[0, 1, 2, 3]"))
    jobs = freeze_configs(
        configs, overrides=overrides, choices=choices, command=_COMMAND, values=values
    )
    ends = run_jobs(jobs, LocalExecutor(imports=JOB_IMPORTS), leases).ends
    return [_to_result(ends.get(one.key), one.log) for one in jobs]


def _to_values(source: object) -> Mapping[str, Any]:
    if not isinstance(source, Mapping):
        kind = type(source).__name__
        what = f"a pool runs config files and mappings, not an object of type {kind!r}"
        raise ConfigError(Problem("ep.run", what, hint="leave out devices and per_device"))
    plain: Any = durable.decode_json(durable.encode_json(source))
    return plain  # type: ignore[no-any-return]  # a mapping stays one


def _check_values(
    values: Mapping[str, Any], overrides: Sequence[str], choices: Choices
) -> CheckedConfig:
    folder = choices.get("user_dir")
    changes = to_overrides(choices, overrides)
    config = load(values, variant=choices.get("variant"), overrides=changes)
    has_task = config.root.get("experiment").value is not None
    config = drop_sections(config, has_task=has_task)
    checked = check_config(config, user_dir=None if folder is None else Path(folder))
    problems = find_blocking_problems(choices, checked.report.problems)
    if problems:
        raise ConfigError(*problems)
    return checked


def _to_result(end: JobEnd | None, log: Path) -> RunResult:
    """The result in the record of a run, or what is known without one."""
    if end is None:
        return RunResult(status="interrupted", reason="not_started", exit_code=130)
    try:
        record = None if end.run_dir is None else read_run(end.run_dir)
    except RecordError:
        record = None
    if record is not None and record.result:
        return read_result(record)
    status, message = "finished", ""
    if end.code != 0:
        status = "failed"
        how = f"killed by signal {-end.code}" if end.code < 0 else f"ended with code {end.code}"
        message = f"its process was {how}" if end.code < 0 else f"its process {how}"
        message += f"; its output is in {log}" if log.is_file() else ""
    code = end.code if end.code >= 0 else 128 - end.code
    reason = "completed" if end.code == 0 else "exception"
    return RunResult(status=status, reason=reason, message=message, exit_code=code, dir=end.run_dir)
