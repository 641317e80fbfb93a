"""Tests of epochal.records.folder.redacted."""

from __future__ import annotations

import re
from pathlib import Path

import epochal
from epochal import durable
from epochal.config.scalar import REDACTED
from epochal.records.folder import redacted

SECRETS = {"api_key": "abcdefgh", "text": "password=abcdefgh", "num_tokens": 5}
KEPT = {"api_key": REDACTED, "text": f"password={REDACTED}", "num_tokens": 5}


def test_text_is_written_without_secrets(tmp_path: Path) -> None:
    redacted.write_text(tmp_path / "a", "password: abcdefgh\nnum_tokens: 5\n")
    assert (tmp_path / "a").read_text() == f"password: {REDACTED}\nnum_tokens: 5\n"


def test_json_is_written_without_secrets(tmp_path: Path) -> None:
    redacted.write_json(tmp_path / "a.json", SECRETS)
    assert durable.find_object(tmp_path / "a.json") == KEPT


def test_lines_are_written_without_secrets(tmp_path: Path) -> None:
    redacted.append_line(tmp_path / "a.jsonl", SECRETS)
    line = (tmp_path / "a.jsonl").read_bytes()
    assert line == redacted.encode_line(SECRETS)
    assert durable.decode_line(line) == KEPT


SOURCE = Path(epochal.__file__).parent
WRITES = re.compile(r"durable\.(write_text|write_json|encode_line|append_line|open_lines)\(")
NO_SECRETS = {
    "cli/verbs/new.py": "a new project, from a template",
    "hooks/profiler.py": "names of operators",
    "hooks/wandb.py": "names of metrics",
    "experiment/tools/profile.py": "names of layers",
    "experiment/record/system_sampler.py": "numbers",
    "experiment/record/open_record.py": "the expanded config, redacted before it became a text",
    "experiment/tools/repro.py": "asked for, elsewhere than in a record",
    "inspect/inspect_data.py": "asked for, a page of samples elsewhere than in a record",
    "doctor/storage.py": "its own words, to see whether a disk keeps them",
    "engine/prediction_file.py": "what predictions depend on, in a hidden file beside them",
    "launch/jobs/freeze_code.py": "differences of files, redacted where they are made",
    "launch/start_at_boot.py": "a unit must hold the command that it starts, with all its words",
    "cli/verbs/launch.py": "asked for, a task file with the command that it runs",
    "cli/verbs/table.py": "asked for, a table that users filled",
    "cli/verbs/serve.py": "the link of a session, in a private folder",
    "launch/cluster/slurm_executor.py": "a folder and the number of a job",
    "web/site/launches.py": "names of experiments and jobs, and values of a form",
    "experiment/record/code_copy.py": "differences of files, redacted where they are made",
    "records/folder/folder.py": "a path",
    "records/code/content_store.py": "digests",
    "records/index/index_database.py": "size and times of a file",
    "records/metrics/curve_cache.py": "numbers",
    "records/layout/run_folders.py": "its own words",
    "records/layout/lease.py": "a process",
    "records/layout/stop_request.py": "a reason, in the words of a user or of a pruner",
    "sweep/sweep_folder.py": "what is searched, in a private folder; counts and numbers",
    "records/mail/mailbox.py": "mails, which are composed without secrets",
    "records/mail/lost_run_mail.py": "addresses as the config wrote them",
    "records/mail/outbox.py": "addresses as the config wrote them, so that they can be reached",
    "records/mail/signing.py": "what the outbox and the notes about lost runs hold",
    "records/folder/readme.py": "redacted there, as people edit it",
    "records/metrics/points.py": "names of metrics, which must be found again",
}
"""Modules that write texts without redaction, and what they write."""


def test_other_modules_write_only_texts_without_secrets() -> None:
    """They write with epochal.records.folder.redacted, or the table says why not."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        own = {"open_lines", "write_json"}  # the latter for provenance, which has names of its own
        allowed = own if name == "records/folder/writer.py" else set()
        writes = set(WRITES.findall(path.read_text(encoding="utf-8"))) - allowed
        if name.startswith(("durable/", "records/folder/redacted.py")) or name in NO_SECRETS:
            continue
        if writes:
            found[name] = writes
    assert found == {}
