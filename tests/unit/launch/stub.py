"""A child for the supervisor: does what the next entry of a list says, and writes a record."""

import json
import os
import signal
import sys
from pathlib import Path


def main(book: Path, *words: str) -> None:
    calls = book / "calls.jsonl"
    before = calls.read_text().splitlines() if calls.exists() else []
    calls.write_text("\n".join([*before, json.dumps(words)]) + "\n")
    act = json.loads((book / "plan.json").read_text())[len(before)]
    if "folder" in act:
        folder = book / act["folder"]
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        told = os.environ.get("EPOCHAL_PARENT", "")
        (folder / "run.json").write_text(json.dumps({"told": told}))
        status = {"status": act.get("status", "failed"), "step": act.get("step", 0)}
        (folder / "status.json").write_text(json.dumps(status))
        error = {"exception_type": "ValueError", "message": act.get("error", "torn\nrow")}
        (folder / "result.json").write_text(json.dumps(error if act.get("code") else {}))
        if "saved" in act:
            (folder / "checkpoints" / "step").write_text(str(act["saved"]))
        for number, step in act.get("folds", {}).items():
            kept = folder / "folds" / number / "checkpoints"
            kept.mkdir(parents=True, exist_ok=True)
            (kept / "step").write_text(str(step))
        Path(os.environ["EPOCHAL_RUN_FILE"]).write_text(str(folder))
    if act.get("waits"):
        signal.signal(signal.SIGTERM, lambda *_: os._exit(75))
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        os.kill(int(act["waits"]), signal.SIGUSR2)  # ready
        signal.pause()
    if "signal" in act:
        os.kill(os.getpid(), act["signal"])
    sys.exit(act.get("code", 0))


main(Path(sys.argv[1]), *sys.argv[2:])
