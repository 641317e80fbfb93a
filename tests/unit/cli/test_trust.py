"""Tests of epochal.cli.trust."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

from epochal.records.folder.record_digests import add_digest
from small_project import forgetting, run_folders

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from small_project import Command


def test_code_outside_of_the_project_is_executed_only_with_trust(
    shop: Path, epochal: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forgetting(shop):
        assert epochal("run", "config.yaml").code == 0
    (trained,) = run_folders(shop)
    # Its code would leave a trace.
    evil, trace = tmp_path / "evil", tmp_path / "trace"
    shutil.copytree(shop / "shop", evil / "shop")
    (evil / "shop" / "__init__.py").write_text(f"open({str(trace)!r}, 'w').close()\n")
    facts = json.loads((trained / "run.json").read_text())
    changed = add_digest(facts | {"project_dir": str(evil)})
    (trained / "run.json").write_text(json.dumps(changed))
    answers = ["", "n", "ja", "y"]
    monkeypatch.setattr("builtins.input", lambda asked: answers.pop(0))
    (shop / "shop").rename(shop / "hidden")
    for verb in ("test", "predict", "resume"):
        done = epochal(verb, "last", "--device=cpu")
        first, _, hint = done.err.partition("\n")
        where = f"would execute the code in {evil}, which is not part of this project ({shop})"
        assert (done.code, first.endswith(where)) == (77, True), done.err
        assert hint.strip().startswith("if you trust that code: "), hint
        assert hint.strip().endswith(f" {verb} last --device=cpu --trust"), hint
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    for _ in range(3):
        done = epochal("test", "last", "--no-file")
        assert (done.code, "would execute the code in" in done.out) == (77, True)
    assert not trace.exists()
    with forgetting(evil):
        assert epochal("test", "last", "--no-file").code == 0
        assert (trace.exists(), answers) == (True, [])
        monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
        assert epochal("test", "last", "--no-file", "--trust").code == 0
