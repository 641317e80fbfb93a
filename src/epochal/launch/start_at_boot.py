"""Starts a command again after a reboot: a systemd user unit, or a crontab line."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from epochal import durable
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Call = Callable[..., subprocess.CompletedProcess[str]]

KEPT_VARIABLES = (
    "PATH",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "OMP_NUM_THREADS",
)
"""Environment variables that the command needs after a reboot, too."""

_SECONDS = 20


@final
@dataclass(frozen=True, slots=True)
class BootJob:
    """A command to start at boot, its folder, and the name of its entry."""

    name: str
    command: Sequence[str]
    dir: Path
    environment: Mapping[str, str]

    def __post_init__(self) -> None:
        texts = [*self.command, str(self.dir), *self.environment.values()]
        strange = next((text for text in texts if "\n" in text or "\0" in text), None)
        if strange is not None:
            what = f"cannot be written into a unit: {strange!r} has more than one line"
            raise ConfigError(Problem("--install", what, hint="rename it"))


@final
@dataclass(frozen=True, slots=True)
class Installation:
    """The text to install, where it goes, and the command that removes it."""

    kind: str
    where: str
    text: str
    removal: str
    remark: str = ""


def make_job(name: str, command: Sequence[str]) -> BootJob:
    """The job for a command, with the current folder and environment."""
    kept = {key: os.environ[key] for key in KEPT_VARIABLES if os.environ.get(key)}
    return BootJob(name, command, Path.cwd(), kept)


def plan_installation(job: BootJob, *, call: Call = subprocess.run) -> Installation:
    """What to install for a job on this machine.

    Raises:
        ConfigError: There is neither systemd nor cron.
    """
    if _works(call, "systemctl", "--user", "show-environment"):
        path = _unit_path(job)
        removal = f"systemctl --user disable {path.name} && rm {shlex.quote(str(path))}"
        remark = "it starts at boot once `loginctl enable-linger` was called, else when you log in"
        return Installation("systemd", str(path), format_unit(job), removal, remark)
    if shutil.which("crontab"):
        removal = f"crontab -l | grep -v {job.name} | crontab -"
        return Installation("crontab", "your crontab", format_crontab(job), removal)
    what = "this machine has neither systemd for users nor crontab"
    hint = "run the command with --keep-alive from your own boot script"
    raise ConfigError(Problem("--install", what, hint=hint))


def install(job: BootJob, plan: Installation, *, call: Call = subprocess.run) -> None:
    """Install a job, replacing an earlier installation of it."""
    if plan.kind == "systemd":
        path = Path(plan.where)
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.write_text(path, plan.text)
        _require(call, "systemctl", "--user", "daemon-reload")
        _require(call, "systemctl", "--user", "enable", path.name)
        return
    listed = _call(call, ["crontab", "-l"])
    others = [line for line in listed.stdout.splitlines() if not line.endswith(_mark(job))]
    _require(call, "crontab", "-", text="\n".join([*others, plan.text]) + "\n")


def format_unit(job: BootJob) -> str:
    """The text of a systemd unit; no shell reads it."""
    variables = [
        f"Environment={_quote(f'{key}={value}')}" for key, value in job.environment.items()
    ]
    lines = [
        "[Unit]",
        f"Description=Epochal keeps {_escape(job.name)} alive",
        "",
        "[Service]",
        f"WorkingDirectory={_escape(str(job.dir))}",
        *variables,
        f"ExecStart={' '.join(_quote(word, is_command=True) for word in job.command)}",
        "KillMode=mixed",
        "TimeoutStopSec=5min",
        "SuccessExitStatus=75",
        "",
        "[Install]",
        "WantedBy=default.target",
    ]
    return "\n".join(lines) + "\n"


def format_crontab(job: BootJob) -> str:
    """A crontab line; cron passes it to a shell, so every word is quoted."""
    variables = [f"{key}={value}" for key, value in job.environment.items()]
    words = ["env", "-C", str(job.dir), *variables, *job.command]
    return f"@reboot {shlex.join(words)}".replace("%", r"\%") + _mark(job)


def _mark(job: BootJob) -> str:
    return f" # {job.name}"


def _unit_path(job: BootJob) -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "systemd" / "user" / f"{job.name}.service"


def _escape(text: str) -> str:
    return text.replace("%", "%%")


def _quote(text: str, *, is_command: bool = False) -> str:
    """A word quoted for systemd, with its placeholders and variables escaped."""
    text = _escape(text.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{text.replace("$", "$$") if is_command else text}"'


def _works(call: Call, *words: str) -> bool:
    if shutil.which(words[0]) is None:
        return False
    try:
        return _call(call, words).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _call(
    call: Call, words: Sequence[str], text: str | None = None
) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, "text": True, "timeout": _SECONDS, "check": False}
    return call(list(words), input=text, **options)


def _require(call: Call, *words: str, text: str | None = None) -> None:
    done = _call(call, words, text)
    if done.returncode != 0:
        what = f"`{shlex.join(words)}` failed: {(done.stderr or '').strip() or done.returncode}"
        raise ConfigError(Problem("--install", what, hint="see what it would do with --dry-run"))
