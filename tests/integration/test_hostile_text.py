"""Control characters in records are shown as text and never reach the terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from comparing import keep_code, make_run
from epochal import durable
from epochal.records.mail.compose import MailContent, compose
from epochal.records.mail.mailbox import Mailbox
from epochal.records.mail.outbox import queue_mail, read_outbox
from epochal.text.escape import escape_control

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
    for place, name in enumerate(("p/t/20261115-031200-a3f9", "p/t/20261115-031300-a3fa")):
        config = {"tag": HOSTILE, f"task.{HOSTILE}": f"{HOSTILE}{place}", "monitor": METRIC}
        texts = {"variant": HOSTILE, "command": HOSTILE, "project": HOSTILE, "runner": HOSTILE}
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
    story = MailContent(kind="failed", tag="t", run="p/t/20261115-031200-a3f9", why=HOSTILE)
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
    "show last",
    "show last --log",
    "show last --plot",
    "show last --explain task",
    "show last --explain nothing",
    "diff last a3f9 --all",
    "describe last",
    "mail",
    "mail all",
    "runs prune --where step>0",
    "index verify",
)


def test_no_command_prints_control_characters_of_a_record(runs: Path, epochal: Command) -> None:
    shown = {words: epochal(*words.split()) for words in COMMANDS}
    for words, done in shown.items():
        assert escape_control(done.out + done.err) == done.out + done.err, words
    escaped = [words for words, done in shown.items() if "a\\x1b[2J" in done.out + done.err]
    assert [*escaped, "index verify"] == [*COMMANDS]


def test_json_output_equals_the_record(runs: Path, epochal: Command) -> None:
    for words in ("runs", "show last", "diff last a3f9", "mail"):
        out = epochal(*words.split(), "--json").out
        assert escape_control(out) == out, words
        assert any(HOSTILE in text for text in _texts(json.loads(out))), words


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(text for one in value.values() for text in _texts(one))]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []
