"""Control characters in records are shown as text and never reach the terminal."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from comparing import keep_code, make_run
from epochal import durable
from epochal.records.mail.compose import MailContent, compose
from epochal.records.mail.mailbox import Mailbox
from epochal.records.mail.outbox import queue_mail, read_outbox
from epochal.text.escape import escape_control, escape_control_json

if TYPE_CHECKING:
    from pathlib import Path

    from small_project import Command

HOSTILE = "a\x1b[2J\x1b]8;;http://x\x07b\x1b]52;c;aGk=\x07\r\x9b31m\u202ec\u2066"
METRIC = f"val/{HOSTILE}"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs and their mail, with control characters in every text."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "runs"
    folder = HOSTILE.replace("/", "")
    names = (f"p/{folder}/20261115-031200-a3f9", f"{folder}/t/20261115-031300-a3fa")
    for place, name in enumerate(names):
        config = {"tag": HOSTILE, f"task.{HOSTILE}": f"{HOSTILE}{place}", "monitor": METRIC}
        texts = {"variant": HOSTILE, "command": HOSTILE, "project": HOSTILE, "runner": HOSTILE}
        texts |= {"project_dir": f"/{HOSTILE}", "cwd": f"/{HOSTILE}"}
        record = make_run(
            root / name,
            config,
            points={METRIC: {1: 1.0, 2: 1.0 + place}},
            metrics={METRIC: 1.0 + place},
            tag=HOSTILE,
            desc=f"{HOSTILE}\n\n{HOSTILE}",
            monitor=METRIC,
            **texts,
        )
        result = record.path / "result.json"
        facts = {"exception_type": "ValueError", "message": HOSTILE, "reason": HOSTILE}
        result.write_bytes(durable.encode_json({**json.loads(result.read_text()), **facts}))
        (record.path / "README.md").write_text(f"# {HOSTILE}\n\n{HOSTILE}\n", newline="")
        (record.path / "logs").mkdir()
        (record.path / "logs" / "run.log").write_text(f"{HOSTILE}\n", newline="")
        keep_code(record, {f"{HOSTILE}.py": f"x = '{HOSTILE}{place}'\n".encode()})
    box = Mailbox(root)
    story = MailContent(kind="failed", tag="t", run=names[0], why=HOSTILE)
    mail = replace(compose(story), subject=HOSTILE, text=f"{HOSTILE}\n{HOSTILE}")
    box.post(mail)
    (parcel,) = queue_mail(mail, [{"type": "webhook", "url": "http://x", "kinds": None}], box)
    replace(parcel, error=HOSTILE, is_final=True).write()
    assert [one.error for one in read_outbox(box)] == [HOSTILE]
    return root


COMMANDS = (
    "runs",
    "runs --group",
    "runs --columns tag,desc,error",
    "runs --columns changed",
    "runs --columns *",
    "runs --format csv",
    "runs --columns * --format csv",
    "runs --group tag --format csv",
    "runs nothing",
    "runs a3f",
    "show last",
    "show last --log",
    "show last --plot",
    "show last --explain task",
    "show last --explain nothing",
    "show a3f",
    "diff last a3f9",
    "diff last a3f9 --all",
    "diff last a3f9 last",
    "test last",
    "predict last",
    "resume last",
    "restore last out",
    "restore last out --partial",
    "describe last",
    "mail",
    "mail all",
    "runs prune --where step>0",
    "completion runs",
    "index",
    "index verify",
    "index rebuild",
    "runs prune --where step>0 --yes",
)
SILENT = ("runs nothing", "completion runs", "index", "index verify", "index rebuild")


def test_no_command_prints_control_characters_of_a_record(runs: Path, epochal: Command) -> None:
    shown = {words: epochal(*words.split()) for words in COMMANDS}
    for words, done in shown.items():
        assert escape_control(done.out + done.err) == done.out + done.err, words
    escaped = [words for words, done in shown.items() if "a\\x1b[2J" in done.out + done.err]
    assert {*COMMANDS} - {*escaped} == {*SILENT}


def test_files_of_tables_have_no_control_characters_and_no_formulas(
    runs: Path, epochal: Command, tmp_path: Path
) -> None:
    config = {f"=1+{HOSTILE}": "=cmd|' /C calc'!A0", "task.a": "-2+3+cmd|' /C calc'!A0"}
    config |= {"task.e": "-val/loss", "task.b": "@SUM(1)", "task.c": "+1!x", "task.d": -2.5}
    make_run(runs / "p" / "t" / "20261115-031400-a3fb", config)
    for name in ("runs.csv", "runs.txt", "runs.json"):
        assert epochal("runs", "--columns", "*", "-o", tmp_path / name).code == 0
        text = (tmp_path / name).read_text()
        assert escape_control_json(text) == text, name
    assert len(json.loads(text)) == 3
    with (tmp_path / "runs.csv").open(newline="") as file:
        header, *_, line = csv.reader(file)
    cells = {*header, *line}
    expected = {"'=cmd|' /C calc'!A0", "'-2+3+cmd|' /C calc'!A0", "-val/loss", "'@SUM(1)", "'+1!x"}
    assert {*expected, "-2.5", f"'=1+{escape_control(HOSTILE)}"} <= cells


def test_json_output_equals_the_record(runs: Path, epochal: Command) -> None:
    for words in ("runs", "runs --columns *", "show last", "diff last a3f9", "mail"):
        out = epochal(*words.split(), "--json").out
        assert escape_control(out) == out, words
        assert any(HOSTILE in text for text in _texts(json.loads(out))), words


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(text for one in value.values() for text in _texts(one))]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []
