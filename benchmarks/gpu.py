"""How fast one CUDA device trains: Epochal beside hand-written loops and other frameworks.

Each contender trains each model in a fresh process, one after the other, with the same weights,
batches and optimizer. A row is printed as soon as it is known, and a table at the end:

    python benchmarks/gpu.py --out gpu.json
    python benchmarks/gpu.py --case gpt2 --contender hand --contender epochal-auto
    python benchmarks/gpu.py --device cpu --quick       # runs every contender, measures nothing

``us/step`` is the median of several blocks of steps, each from one synchronization to the next;
``first`` the seconds from the start of the process to the end of its first step; ``peak`` and
``whole`` the gigabytes of tensors on the device after the warm-up and over the whole run, ``held``
what the process has of it in the end; ``loss`` the relative difference of the final loss to that of
the hand-written loop, ``same opt`` to that of the same loop with the optimizer that Epochal builds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent

CONTENDERS = (
    "hand",
    "hand-fused",
    "hand-compile",
    "hand-captured",
    "lightning",
    "fabric",
    "accelerate",
    "transformers",
    "epochal-eager",
    "epochal-graph",
    "epochal-compile",
    "epochal-auto",
)
OWN = {
    "tiny": ("hand-samples", "epochal-auto-batches", "epochal-auto-sent", "epochal-auto-resident"),
    "resnet18": ("epochal-auto-last",),
    "gpt2": (),
}
"""Contenders that make sense for one model only."""

TARGETS = {"tiny": 70, "resnet18": 4_100, "gpt2": 34_000}
"""Target of ``auto`` on one H200, in microseconds per step."""

HEADER = f"{'case':<9} {'contender':<22}{'us/step':>10}{'ratio':>7}{'first':>7}" + (
    f"{'peak':>7}{'whole':>7}{'held':>7}{'loss':>10}{'same opt':>10}  "
)


def main() -> None:
    """Run what the arguments select and print the table."""
    words = parse_words()
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + words.seconds
    print(HEADER, flush=True)
    for case in words.case or OWN:
        for contender in words.contender or (*CONTENDERS, *OWN[case]):
            left = end - time.monotonic()
            if left <= 0:
                row: dict[str, Any] = {"failed": "not run: the time was up"}
            else:
                row = measure(case, contender, words, min(left, words.limit))
            rows.append({"case": case, "contender": contender, **row})
            print(show(rows[-1], rows), flush=True)
            if words.out is not None:
                write(words.out, rows)
    print_table(rows)


def parse_words() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*CONTENDERS, *(name for names in OWN.values() for name in names)]
    parser.add_argument("--case", action="append", choices=list(OWN), help="may be repeated")
    parser.add_argument("--contender", action="append", choices=known, help="may be repeated")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, to try the program")
    parser.add_argument("--seconds", type=float, default=540, help="for all of them together")
    parser.add_argument("--limit", type=float, default=120, help="seconds for each of them")
    parser.add_argument("--out", type=Path, help="a JSON file for everything that was measured")
    return parser.parse_args()


def measure(case: str, contender: str, words: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """The result of one fresh process, or its error."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result, log = folder / "result.json", folder / "log.txt"
        begun = time.time()
        command = [sys.executable, str(HERE / "gpu_contenders.py"), "--case", case]
        command += ["--contender", contender, "--device", words.device, "--begun", str(begun)]
        command += ["--scratch", str(folder), "--out", str(result)]
        command += ["--quick"] if words.quick else []
        with log.open("w", encoding="utf-8") as stream:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            is_late = _wait(process, seconds)
        said = log.read_text(encoding="utf-8", errors="replace")
        row: dict[str, Any] = {"seconds": time.time() - begun, "said": own_lines(said)}
        if result.exists():
            return row | json.loads(result.read_text(encoding="utf-8"))
        reason = f"killed after {seconds:.0f} s" if is_late else last_line(said)
        return row | {"failed": reason, "log": said[-3000:]}


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # compilers start processes
        process.wait()
        return True
    return False


def environment(folder: Path) -> dict[str, str]:
    """Empty caches of compiled code, so that no contender uses those of another."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    own = {
        "PYTHONPATH": path,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    return os.environ | own


def own_lines(said: str) -> list[str]:
    """Epochal's message about its kind of step."""
    lines = [line.partition(" step: ") for line in said.splitlines()]
    return [
        f"{mark.strip()} {rest.strip()}" for begin, mark, rest in lines if mark and "{" not in begin
    ]


def last_line(said: str) -> str:
    """The last line that a process printed, usually the error."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "said nothing"


def show(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """A line of the table; ratio and losses need the rows of the hand-written loops."""
    begin = f"{row['case']:<9} {row['contender']:<22}"
    if "us_per_step" not in row:
        why = row.get("failed", "took too few steps")
        return begin + f" {why}" + _indent(row.get("log", ""))
    by_name = {one["contender"]: one for one in rows if one["case"] == row["case"]}
    by_hand = by_name.get("hand", {})
    ratio = row["us_per_step"] / by_hand["us_per_step"] if "us_per_step" in by_hand else None
    text = begin + f"{row['us_per_step']:>10,.1f}" + _figure(ratio, ".2f")
    text += _figure(row.get("first_step_seconds"), ".1f")
    for name in ("peak_gb", "peak_whole_gb", "reserved_gb"):
        text += _figure(row.get(name), ".2f")
    difference = compare(row, by_hand)
    text += _figure(difference, ".1e", 10)
    text += _figure(compare(row, by_name.get("hand-fused", {})), ".1e", 10)
    notes = [str(row["choices"])] if row.get("choices") else []
    if difference is not None and difference > row["tolerance"]:
        notes.append("LOSS DIFFERS")
    if row["contender"].startswith("epochal-auto"):
        notes.append(f"target {TARGETS[row['case']]:,}")
    return text + "  " + "; ".join(notes + row.get("said", []))


def compare(row: dict[str, Any], other: dict[str, Any]) -> float | None:
    """The relative difference of two final losses after the same number of steps."""
    shared = row.get("losses", {}).keys() & other.get("losses", {}).keys()
    if not shared:
        return None
    steps = max(shared, key=int)
    return abs(row["losses"][steps] - other["losses"][steps]) / abs(other["losses"][steps])


def _figure(value: float | None, form: str, width: int = 7) -> str:
    return f"{'-' if value is None else format(value, form):>{width}}"


def _indent(log: str) -> str:
    return "".join(f"\n    | {line}" for line in log.splitlines()[-15:])


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the whole table."""
    versions = next((row["versions"] for row in reversed(rows) if "versions" in row), {})
    print(f"\n{versions}\n{HEADER}")
    for row in rows:
        print(show({**row, "log": "", "said": []}, rows))


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the results so far."""
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
