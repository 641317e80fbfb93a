"""Units and crontab lines: every word arrives as it was typed."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from epochal.errors import ConfigError
from epochal.launch import start_at_boot as module
from epochal.launch.start_at_boot import (
    BootJob,
    format_crontab,
    format_unit,
    install,
    make_job,
    plan_installation,
)

WORDS = ["/opt/my python/bin/python", "run", 'a "b".yaml', "x=100%", "y=$HOME", r"z=\d", "it's"]
JOB = BootJob("epochal-a-1", WORDS, Path("/home/a b/50%"), {"PATH": "/bin:$x"})


class System:
    """Records calls of systemctl and crontab instead of running them."""

    def __init__(self, *, fails: str = "", crontab: str = "") -> None:
        self.calls: list[tuple[list[str], str | None]] = []
        self._fails, self._crontab = fails, crontab

    def __call__(
        self, words: list[str], *, input: str | None = None, **_: Any
    ) -> subprocess.CompletedProcess[str]:
        self.calls.append((words, input))
        code = int(bool(self._fails) and self._fails in " ".join(words))
        out = self._crontab if words == ["crontab", "-l"] else ""
        return subprocess.CompletedProcess(words, code, out, "no bus" if code else "")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/usr/bin/{name}")
    return tmp_path


def unquote(text: str) -> list[str]:
    """The words that systemd reads from the value of ExecStart."""
    words = shlex.split(text.replace("$$", "$").replace("%%", "%"), posix=True)
    return list(words)


def test_every_word_of_a_unit_arrives_as_it_was_typed() -> None:
    lines = dict(line.split("=", 1) for line in format_unit(JOB).splitlines() if "=" in line)
    assert unquote(lines["ExecStart"]) == [word.replace("\\\\", "\\") for word in WORDS]
    assert lines["WorkingDirectory"] == "/home/a b/50%%"
    assert lines["Environment"] == '"PATH=/bin:$x"'
    assert lines["KillMode"] == "mixed"
    assert lines["WantedBy"] == "default.target"


def test_every_word_of_a_crontab_line_arrives_as_it_was_typed() -> None:
    line = format_crontab(JOB)
    assert line.startswith("@reboot env -C ")
    assert line.endswith(" # epochal-a-1")
    command = line.removeprefix("@reboot ").replace(r"\%", "%")  # as cron does
    words = ["env", "-C", "/home/a b/50%", "PATH=/bin:$x", *WORDS]
    assert shlex.split(command, comments=True) == words


def test_words_of_several_lines_are_refused() -> None:
    with pytest.raises(ConfigError, match="has more than one line"):
        BootJob("a", ["run", "a\nb"], Path("/"), {})


def test_systemd_is_preferred(home: Path) -> None:
    system = System()
    plan = plan_installation(JOB, call=system)
    path = home / "systemd" / "user" / "epochal-a-1.service"
    assert (plan.kind, plan.where) == ("systemd", str(path))
    assert plan.removal == f"systemctl --user disable epochal-a-1.service && rm {path}"
    assert "loginctl enable-linger" in plan.remark
    assert not path.exists()
    install(JOB, plan, call=system)
    assert path.read_text() == format_unit(JOB)
    words = [" ".join(words) for words, _ in system.calls]
    assert words[1:] == [
        "systemctl --user daemon-reload",
        "systemctl --user enable epochal-a-1.service",
    ]


def test_crontab_is_used_where_users_have_no_systemd() -> None:
    old = "0 * * * * backup\n@reboot something old # epochal-a-1\n"
    system = System(fails="systemctl", crontab=old)
    plan = plan_installation(JOB, call=system)
    assert (plan.kind, plan.where) == ("crontab", "your crontab")
    install(JOB, plan, call=system)
    assert system.calls[-1] == (
        ["crontab", "-"],
        f"0 * * * * backup\n{format_crontab(JOB)}\n",
    )


def test_a_machine_with_neither_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    with pytest.raises(ConfigError, match="neither systemd for users nor crontab"):
        plan_installation(JOB, call=System())


def test_a_program_that_fails_is_named() -> None:
    system = System()
    plan = plan_installation(JOB, call=system)
    with pytest.raises(ConfigError, match="`systemctl --user daemon-reload` failed: no bus"):
        install(JOB, plan, call=System(fails="daemon-reload"))


def test_only_listed_environment_variables_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("SECRET_TOKEN", "x")
    job = make_job("a", ["run"])
    assert job.dir == tmp_path
    assert job.environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert "SECRET_TOKEN" not in job.environment
