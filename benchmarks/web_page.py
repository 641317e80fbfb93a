"""The page of `epochal serve` in a real Chromium, beside TensorBoard, MLflow and trackio.

    make bench-web

First the sizes of Epochal's goals; TensorBoard, which reads files, gets the same long curves. Then
smaller data that all four can write in a minute, each through its own writer. Times are those of
the browser: from the start of a navigation, a click or a logged point to the frame that shows the
result, medians of several rounds. The last value of every curve must have reached the browser.
Prints tables; leaves no files unless told to.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import TimeoutError as PageTimeoutError

from made_runs import make_runs
from web import log_point, make_long_runs
from web_browser import (
    PATIENCE_S,
    measure_memory,
    opened_browser,
    wait_for_frame,
)
from web_peers import METRIC, value_at
from web_tools import (
    COLUMNS,
    PEERS,
    POINTS,
    RUNS,
    TABLE_RUNS,
    TOOLS,
    Epochal,
    LongTensorBoard,
    compare_path,
    find_runs,
    serve_own,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Page

    from web_browser import Visitor
    from web_tools import Tool

ROUNDS = 5
LONG_RUNS, LIVE_RUNS = 50, 20
QUERY = "optim.lr > 1e-3 and val/loss < 0.5"
TABLE, CHART, LIVE = "table of runs", "first chart", "log to pixel"
SCRIPTS, BYTES, MEMORY = "JavaScript, compressed", "bytes for the new points", "server memory"
ALL_SHOW = """([n, text]) => n <= [...document.querySelectorAll('article li b')]
  .filter((one) => one.textContent === text).length"""


def measure_goals(browser: Browser, folder: Path, runs: int, points: int) -> None:
    """Print the figures of Epochal that have goals."""
    many, long = folder / "many", folder / "long"
    if not many.exists():
        make_runs(many, runs, columns=COLUMNS)
        make_long_runs(long, LONG_RUNS, points)
    for root in (many, long):
        words = [sys.executable, "-m", "epochal", "index", "--runs-dir", root]
        subprocess.run(words, check=True, capture_output=True)
    rows = [("", "median", "slowest", "goal")]

    def add(name: str, seconds: list[float], goal: float) -> None:
        middle, slowest = statistics.median(seconds), max(seconds)
        rows.append((name, f"{middle:.3f} s", f"{slowest:.3f} s", f"{goal:.2f} s"))

    with serve_own(browser, many) as (visitor, process):
        size = f"{runs:,} runs x {COLUMNS} settings"
        add(
            f"{size}: first paint", visitor.time_to("/#/runs", Epochal.is_listed, runs, ROUNDS), 0.5
        )
        few, all_names = "optim.lr,val%2Floss", ",".join(["val%2Floss", *name_settings(many)])
        add("  sort", measure_rows(visitor, runs, few, sort_rows), 0.15)
        add("  filter", measure_rows(visitor, runs, few, filter_rows), 0.15)
        add(
            f"  sort, {COLUMNS} columns shown",
            measure_rows(visitor, runs, all_names, sort_rows),
            0.15,
        )
        seconds, num_bytes = measure_live_runs(visitor, many)
        add(f"{LIVE_RUNS} live runs: log to pixel", seconds, 1.0)
        rows.append(("  bytes per new point", f"{num_bytes:.0f}", "", ""))
        rows.append((f"  {MEMORY}", f"{measure_memory(process):.0f} MB", "", "300 MB"))
        with visitor.open("/#/runs") as (page, traffic):
            wait_for_frame(page, Epochal.is_listed, runs)
            rows.append((f"  {SCRIPTS}", f"{traffic.script_kb():.0f} KB", "", "150 KB"))
    with serve_own(browser, long) as (visitor, process):
        path, drawn = compare_path(long), Epochal.is_drawn
        size = f"{LONG_RUNS} runs x {points:,} steps"
        add(f"{size}: first chart", measure_chart(visitor, path), 0.3)
        add("  in a new browser", visitor.time_to(path, drawn, LONG_RUNS, ROUNDS), 0.3)
        add(
            "  (an empty page there)", visitor.time_to("/icon.svg", "() => true", None, ROUNDS), 0.3
        )
        first, last = measure_zoom(visitor, path)
        add("  zoom", first, 0.1)
        add("  zoom, until all details are there", last, 0.1)
        rows.append((f"  {MEMORY}", f"{measure_memory(process):.0f} MB", "", "300 MB"))
    print_table(rows)


def name_settings(root: Path) -> list[str]:
    """The names of all settings of a run."""
    folder = next(iter(find_runs(root).values()))
    return list(json.loads((folder / "config" / "provenance.json").read_text("utf-8")))


def measure_rows(
    visitor: Visitor, runs: int, columns: str, act: Callable[[Page, int], None]
) -> list[float]:
    """Seconds from a click or a key to the changed rows."""
    first = "document.querySelector('.body [role=row] a')?.title"
    is_ready = "document.querySelector('.table')?.getAttribute('aria-busy') === 'false'"
    found = []
    with visitor.open(f"/#/runs?columns={columns}") as (page, _):
        wait_for_frame(page, Epochal.is_listed, runs)
        for i in range(ROUNDS):
            page.wait_for_timeout(500)
            old = page.evaluate(f"() => {first}")
            act(page, i)
            end = wait_for_frame(page, f"(old) => {first} !== old && {is_ready}", old)
            found.append(end - page.evaluate("() => marks.begin") / 1000)
    return found


def sort_rows(page: Page, number: int) -> None:
    """Click the header of a setting or a metric."""
    name = ("optim.lr", "val/loss")[number % 2]
    page.locator(f"[role=columnheader] button[title*='{name}']").click()


def filter_rows(page: Page, number: int) -> None:
    """Change the filter."""
    page.get_by_role("combobox").first.fill((QUERY, "")[number % 2])


def measure_live_runs(visitor: Visitor, root: Path) -> tuple[list[float], float]:
    """Seconds from points of all live runs to their pixels, and bytes per point."""
    found = dict(list(find_runs(root).items())[:LIVE_RUNS])
    with visitor.open(compare_path(root, LIVE_RUNS)) as (page, traffic):
        wait_for_frame(page, Epochal.is_drawn, LIVE_RUNS)
        page.locator(".toolbar .find").fill(METRIC)
        page.wait_for_timeout(2000)
        seconds, before = [], traffic.num_bytes
        for i in range(ROUNDS):
            begin = time.perf_counter()
            for folder in found.values():
                log_point(folder, int(time.time()) + i, 40.0 + i)
            wait_for_frame(page, ALL_SHOW, [LIVE_RUNS, str(40 + i)])
            seconds.append(time.perf_counter() - begin)
        return seconds, (traffic.num_bytes - before) / (ROUNDS * LIVE_RUNS)


def measure_chart(visitor: Visitor, path: str) -> list[float]:
    """Seconds from the table of runs to the curves of all of them."""
    found = []
    for _ in range(ROUNDS):
        with visitor.open("/#/runs") as (page, _):
            wait_for_frame(page, Epochal.is_listed, LONG_RUNS)
            page.wait_for_timeout(1000)
            follow = "(path) => { marks.begin = performance.now(); location.assign(path); }"
            page.evaluate(follow, path)
            end = wait_for_frame(page, Epochal.is_drawn, LONG_RUNS)
            found.append(end - page.evaluate("() => marks.begin") / 1000)
    return found


def measure_zoom(visitor: Visitor, path: str) -> tuple[list[float], list[float]]:
    """Seconds from the end of a drag to the zoomed curves, and to the same in detail."""
    first, last = [], []
    with visitor.open(path) as (page, _):
        wait_for_frame(page, Epochal.is_drawn, LONG_RUNS)
        over = page.locator("article .u-over").first
        over.scroll_into_view_if_needed()
        for i in range(ROUNDS):
            page.wait_for_timeout(1000)
            box = over.bounding_box()
            assert box is not None
            left = box["x"] + box["width"] * (0.2 + 0.1 * i)
            page.mouse.move(left, box["y"] + 50)
            page.mouse.down()
            page.mouse.move(left + box["width"] * 0.05, box["y"] + 60, steps=3)
            with page.expect_response("**/api/series?*"):
                page.mouse.up()
            page.wait_for_timeout(1000)
            first.append(page.evaluate("() => marks.first - marks.begin") / 1000)
            last.append(page.evaluate("() => marks.drawn - marks.begin") / 1000)
            page.mouse.dblclick(left, box["y"] + 50)
    return first, last


def measure_long_tensorboard(browser: Browser, folder: Path, points: int) -> None:
    """Print what TensorBoard does with the long curves."""
    tool = LongTensorBoard(folder, LONG_RUNS, points)
    tool.write()
    with tool.served(browser, is_table=False) as (visitor, path, process):
        begin = time.perf_counter()
        last = value_at(0, points - 1)
        text = f"> {PATIENCE_S} s"
        while time.perf_counter() - begin < PATIENCE_S:  # it reads files while it answers
            with visitor.open(path) as (page, traffic):
                seconds = wait_for_frame(page, tool.is_drawn, LONG_RUNS)
                page.wait_for_timeout(200)
                if not traffic.count_missing([last]):
                    waited = time.perf_counter() - begin
                    text = f"{seconds:.2f} s, once {waited:.0f} s of reading were over"
                    break
        memory = measure_memory(process)
    size = f"{LONG_RUNS} runs x {points:,} steps"
    print(f"TensorBoard, {size}: first chart {text}; {memory:.0f} MB\n")


def measure_tool(tool: Tool, browser: Browser, found: dict[str, str]) -> None:
    """Fill in the figures of one tool by name."""
    last = [value_at(run, POINTS - 1) for run in range(RUNS)]
    tool.write()
    if not tool.is_listed:
        found[TABLE] = "none"
    else:
        with tool.served(browser, is_table=True) as (visitor, path, _):
            found[TABLE] = measure_first(visitor, path, tool.is_listed, TABLE_RUNS)
    with tool.served(browser, is_table=False) as (visitor, path, process):
        found[CHART] = measure_first(visitor, path, tool.is_drawn, RUNS)
        with visitor.open(path) as (page, traffic):
            wait_for_frame(page, tool.is_drawn, RUNS)
            page.wait_for_timeout(3000)  # what is loaded later
            found[SCRIPTS] = f"{traffic.script_kb():.0f} KB"
            if missing := traffic.count_missing(last):
                raise RuntimeError(f"{missing} of {RUNS} last values did not reach the browser")
            before, begin = traffic.num_bytes, time.perf_counter()
            old = page.evaluate(tool.shown)
            tool.log()
            try:
                wait_for_frame(page, f"(old) => ({tool.shown})() !== old", old)
                found[LIVE] = f"{time.perf_counter() - begin:.2f} s"
            except PageTimeoutError:
                found[LIVE] = f"> {PATIENCE_S} s"
            found[BYTES] = f"{traffic.num_bytes - before:,}"
        found[MEMORY] = f"{measure_memory(process):.0f} MB"


def measure_first(visitor: Visitor, path: str, script: str, count: int) -> str:
    """The median time to a frame, or that it takes too long."""
    try:
        return f"{statistics.median(visitor.time_to(path, script, count, ROUNDS)):.2f} s"
    except PageTimeoutError:
        return f"> {PATIENCE_S} s"


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Names left, figures right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        figures = (cell.rjust(width + 2) for cell, width in zip(cells, widths[1:], strict=True))
        print((name.ljust(widths[0]) + "".join(figures)).rstrip())
    print()


def main() -> None:
    """Make the runs, measure, clean up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="make the runs here, and leave them")
    parser.add_argument("--parts", nargs="*", default=["goals", "tensorboard", "tools"])
    parser.add_argument("--tools", nargs="*", default=[one.name for one in TOOLS])
    args = parser.parse_args()
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {load}")
    folder = args.keep or Path(tempfile.mkdtemp(prefix="epochal-web-"))
    try:
        with opened_browser() as browser:
            peers = "" if args.parts == ["goals"] else f"; {name_versions()}"
            print(f"Chromium {browser.version}{peers}\n")
            if "goals" in args.parts:
                measure_goals(browser, folder / "goals", args.runs, args.points)
            if "tensorboard" in args.parts:
                measure_long_tensorboard(browser, folder / "long", args.points)
            if "tools" in args.parts:
                sizes = f"{TABLE_RUNS} runs x {COLUMNS} settings, {RUNS} runs x {POINTS:,} points"
                print(f"the same data in each: {sizes}\n")
                print_table(compare_tools(browser, folder, args.tools))
    finally:
        if args.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def compare_tools(browser: Browser, folder: Path, names: list[str]) -> list[tuple[str, ...]]:
    """The figures of all tools; one that fails says so, and does not end the benchmark."""
    found: dict[str, dict[str, str]] = {}
    for kind in TOOLS:
        if kind.name not in names:
            continue
        own = found[kind.name] = {}
        try:
            measure_tool(kind(folder / kind.name), browser, own)
        except Exception as error:
            print(f"{kind.name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
    figures = (TABLE, CHART, LIVE, BYTES, SCRIPTS, MEMORY)
    rows = [(name, *(one.get(name, "failed") for one in found.values())) for name in figures]
    return [("", *found), *rows]


def name_versions() -> str:
    """The versions of the other tools."""
    words = [PEERS / "python", "-m", "pip", "freeze"]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    wanted = ("tensorboard==", "mlflow==", "trackio==")
    return ", ".join(one.replace("==", " ") for one in lines if one.startswith(wanted))


if __name__ == "__main__":
    main()
