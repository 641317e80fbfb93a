"""The answers of `epochal serve` over HTTP: ten thousand runs listed, long curves, live points.

Makes run folders, starts the server in a process of its own, signs in, and measures requests as a
browser sends them, from the first byte sent to the last byte read. Leaves no files.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from urllib.parse import urlencode

import psutil

from made_runs import make_runs

ROUNDS = 9
LIST_GOAL, CHART_GOAL, ZOOM_GOAL, LIVE_GOAL, MEMORY_GOAL = 0.15, 0.3, 0.1, 1.0, 300
LIVE_RUNS = 20
CURVE_RUNS = 50
COLUMNS = "val/loss, optim.lr, optim.type, task.batch_size, best, seconds, model.type, seed"
WIDE = "*.*, */*"
QUERY = "optim.lr > 1e-3 and val/loss < 0.5"


class Client:
    """A signed-in browser without a screen."""

    def __init__(self, link: str) -> None:
        self.address, _, code = link.partition("/open#")
        self.host = self.address.removeprefix("http://")
        self.connection = http.client.HTTPConnection(self.host, timeout=60)
        headers = {"origin": self.address, "content-type": "application/json"}
        body = json.dumps({"code": code})
        self.connection.request("POST", "/api/session", body, headers)
        answer = self.connection.getresponse()
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        answer.read()

    def get(self, path: str, /, **query: object) -> tuple[float, bytes]:
        """Seconds and body of one request."""
        begin = time.perf_counter()
        text = f"{path}?{urlencode(query, doseq=True)}"
        self.connection.request("GET", text, headers={"cookie": self.cookie})
        answer = self.connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{text}: {answer.status} {data.decode()}")
        return time.perf_counter() - begin, data


def measure(client: Client, title: str, goal: float, path: str, /, **query: object) -> bytes:
    """Print the median time of a request beside its goal."""
    found = [client.get(path, **query) for _ in range(ROUNDS)]
    seconds = statistics.median(one for one, _ in found[1:])
    size = len(found[0][1])
    first = found[0][0]
    print(f"{title:<44}{first:>8.3f}s{seconds:>8.3f}s{goal:>8.2f}s{size:>12,}")
    return found[0][1]


def make_long_runs(root: Path, count: int, points: int) -> None:
    """Runs with one long curve; they share one file of points."""
    make_runs(root, count, seed=1)
    folders = sorted(path.parent for path in root.rglob("run.json"))
    rows = bytearray()
    for step in range(points):
        value = 2.0 / (1 + step / 1000) + (step % 97) / 1000 + (5.0 if step == points // 3 else 0.0)
        head = struct.pack("<IIqdd", 1, 0, step, 1.7e9 + step, value)
        rows += head + struct.pack("<I", zlib.crc32(head))
    shared = folders[0] / "metrics.bin"
    shared.write_bytes(rows)
    for folder in folders[1:]:
        (folder / "metrics.bin").unlink()
        os.link(shared, folder / "metrics.bin")


def log_point(folder: Path, step: int, value: float = 0.5) -> None:
    """Append one point, as a training does."""
    head = struct.pack("<IIqdd", 1, 0, step, time.time(), value)
    with (folder / "metrics.bin").open("ab") as file:
        file.write(head + struct.pack("<I", zlib.crc32(head)))


def measure_live(client: Client, root: Path, ids: list[str]) -> None:
    """The time from a logged point to its event, for many runs at once."""
    folders = {path.name: path for path in root.glob("*/*/*") if path.name in ids}
    stream = http.client.HTTPConnection(client.host, timeout=60)
    stream.request(
        "GET",
        f"/api/events?{urlencode({'run': ids}, doseq=True)}",
        headers={"cookie": client.cookie},
    )
    answer = stream.getresponse()
    while not answer.readline().startswith(b"data: "):
        pass
    delays, num_bytes = [], 0
    for i in range(5):
        begin, missing = time.perf_counter(), set(ids)
        for one in ids:
            log_point(folders[one], 100_000 + i)
        while missing:
            line = answer.readline()
            num_bytes += len(line)
            if line.startswith(b"data: ") and b'"name"' in line:
                missing.discard(json.loads(line[6:])["run"])
        delays.append(time.perf_counter() - begin)
    slowest, each = max(delays), num_bytes / (5 * len(ids))
    print(
        f"log to event, {len(ids)} runs at once (slowest)       {slowest:>17.3f}s{LIVE_GOAL:>8.2f}s"
    )
    print(f"bytes per event of one point                {each:>17.0f}")
    stream.close()


def serve(root: Path) -> tuple[subprocess.Popen[str], str]:
    """The process of a server and its link."""
    words = [sys.executable, "-m", "epochal", "serve", "--no-open", "--port", "0"]
    process = subprocess.Popen(
        [*words, "--runs-dir", str(root)], stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://\S+/open#\S+", line):
            return process, found[0]
    raise SystemExit("the server did not start")


def stop(process: subprocess.Popen[str]) -> None:
    """Print the memory of a server, and end it."""
    memory = psutil.Process(process.pid).memory_info().rss / 2**20
    print(f"memory of the server                        {memory:>15.0f} MB{MEMORY_GOAL:>6} MB\n")
    process.send_signal(signal.SIGINT)
    process.wait(30)


def main() -> None:
    """Make the runs, measure and clean up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="make the runs here, and leave them")
    args = parser.parse_args()
    folder = args.keep or Path(tempfile.mkdtemp(prefix="epochal-web-"))
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    try:
        many, long = folder / "many", folder / "long"
        if not many.exists():
            make_runs(many, args.runs)
            make_long_runs(long, CURVE_RUNS, args.points)
        process, link = serve(many)
        client = Client(link)
        time.sleep(2.5)  # folders that changed just now are read again
        print(f"\n{args.runs:,} runs{'first':>43}{'median':>9}{'goal':>9}{'bytes':>12}")
        data = measure(client, "list, 200 rows", LIST_GOAL, "/api/runs", columns=COLUMNS)
        measure(client, "list, row 9,000", LIST_GOAL, "/api/runs", columns=COLUMNS, offset=9000)
        measure(
            client, "sort by a metric", LIST_GOAL, "/api/runs", columns=COLUMNS, sort="-val/loss"
        )
        measure(
            client, "sort by a setting", LIST_GOAL, "/api/runs", columns=COLUMNS, sort="optim.lr"
        )
        measure(client, "filter", LIST_GOAL, "/api/runs", columns=COLUMNS, where=QUERY)
        measure(
            client,
            "filter and sort",
            LIST_GOAL,
            "/api/runs",
            columns=COLUMNS,
            where=QUERY,
            sort="val/loss",
        )
        measure(client, "search", LIST_GOAL, "/api/runs", columns=COLUMNS, search="warm-up")
        measure(client, "all columns, 100 rows", LIST_GOAL, "/api/runs", columns=WIDE, limit=100)
        ids = [row["id"] for row in json.loads(data)["rows"]]
        measure(
            client,
            "sparklines of 50 runs",
            LIST_GOAL,
            "/api/sparklines",
            run=ids[:50],
            name="val/loss",
        )
        measure_live(client, many, ids[:LIVE_RUNS])
        stop(process)
        process, link = serve(long)
        client = Client(link)
        ids = [row["id"] for row in json.loads(client.get("/api/runs")[1])["rows"]]
        print(f"{len(ids)} runs x {args.points:,} points")
        whole = {"run": ids, "name": "train/loss", "points": 400}
        data = measure(client, "overlay", CHART_GOAL, "/api/series", **whole)
        assert all(max(one["max"]) > 5 for one in json.loads(data)["series"]), "a spike was hidden"
        middle = {"from": args.points // 3, "to": args.points // 3 + args.points // 20}
        measure(client, "zoom to 5 %", ZOOM_GOAL, "/api/series", **whole, **middle)
        measure(
            client, "one run, 800 points", ZOOM_GOAL, "/api/series", **{**whole, "run": ids[:1]}
        )
        stop(process)
    finally:
        if args.keep is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
