"""Script payloads in every text that a run can bring: shown as text, never executed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from browser.conftest import serving
from browser.generated_runs import BASE, generate_runs
from comparing import keep_code
from epochal.records.find import read_run
from epochal.records.folder.folder import RunFolder
from epochal.records.folder.labels import LABELS_FILE, MAX_LABELS, MAX_LENGTH
from epochal.records.folder.media import save_media
from epochal.records.folder.writer import RunWriter
from epochal.records.mail.mailbox import Mail, Mailbox
from small_project import write_shop

expect = pytest.importorskip("playwright.sync_api").expect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

# Links of pictures have no plain `href`.
ADDRESSES = "all => all.map(one => new URL(one.getAttribute('href'), location.href).href)"
CALLS = ("alert(1)", "window.pwned=1")
SHAPES = (
    "<script>{}</script>",
    "<img src=x onerror={}>",
    "<svg onload={}>",
    "<iframe srcdoc='<script>{}</script>'>",
    "<a href=javascript:{}>x</a>",
    "[x](javascript:{})",
    "![x](javascript:{})",
    "<javascript:{}>",
    '"><script>{}</script>',
    "'onmouseover={} '",
    "{{constructor.constructor('{}')()}}",
    "${{{}}}",
    "</textarea><script>{}</script>",
    "</title><script>{}</script>",
    "</style><script>{}</script>",
    "--><script>{}</script>",
    "]]><script>{}</script>",
    "<details open ontoggle={}>",
    "<video><source onerror={}>",
    "<body onload={}>",
    "<math><mtext><mglyph><style><img src=x onerror={}>",
    "<object data=javascript:{}>",
    "<embed src=javascript:{}>",
    "<form action=javascript:{}><button>x</button></form>",
    "<base href=javascript:{}//>",
    "<link rel=stylesheet href=javascript:{}>",
    "<meta http-equiv=refresh content='0;url=javascript:{}'>",
    "<template><script>{}</script></template>",
    "<x onclick={} tabindex=1 autofocus onfocus={}>",
    "[x](data:text/html,<script>{}</script>)",
    "[x](JaVaScRiPt:{})",
    "[x](java&#10;script:{})",
    "[x](vbscript:{})",
    "<https://a.org/?\"onmouseover={}>",
    "`<script>{}</script>`",
    "```\n<script>{}</script>\n```",
    "| <script>{}</script> | b |\n|---|---|\n| <img src=x onerror={}> | 2 |",
    "> <script>{}</script>",
    "# <script>{}</script>",
    "1. <script>{}</script>",
    "\x1b]8;;javascript:{}\x07x\x1b]8;;\x07",
    "\u202e<script>{}</script>",
    "<scr\x00ipt>{}</scr\x00ipt>",
    "\uff1cscript\uff1e{}\uff1c/script\uff1e",
    "<img src=\"x` `<script>{}</script>\"` `>",
    "<svg><animate onbegin={} attributeName=x dur=1s>",
    "<svg><script>{}</script></svg>",
    "<svg><a xlink:href=javascript:{}><text>x</text></a></svg>",
    "<input autofocus onfocus={}>",
    "<select autofocus onfocus={}>",
    "<marquee onstart={}>",
    "<audio src=x onerror={}>",
    "<isindex action=javascript:{} type=image>",
    "<img src=1 href=1 onerror=\"{}\"></img>",
    "<noscript><p title=\"</noscript><img src=x onerror={}>\">",
    "<b style=\"background:url(javascript:{})\">x</b>",
    "<div style=\"width:expression({})\">x</div>",
    "{{{{{}}}}}",
    "{{@html '<script>{}</script>'}}",
    "javascript:{}",
)  # fmt: skip
PAYLOADS = [shape.replace("{}", call) for shape in SHAPES for call in CALLS]
TABS = ("", "readme", "config", "code", "log", "media", "checkpoints", "machine")


def test_no_text_of_a_run_is_executed(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    assert len(PAYLOADS) >= 120
    write_hostile_project(tmp_path)
    generate_runs(tmp_path / "runs")
    (folder,) = (tmp_path / "runs").glob(f"*/*/{BASE}")
    everything = "\n\n".join(PAYLOADS)
    plant(folder, everything)
    with serving(tmp_path / "runs", "--allow-launch") as served:
        page = open_page(served)
        page.get_by_text("6 runs").wait_for()
        visited = [f"#/runs/{BASE}/{tab}" for tab in TABS]
        other = "20261114-140000-wide"
        for place in ("#/runs", *visited, f"#/compare?run={BASE}&run={other}", "#/mail"):
            page.goto(f"{served.address}/{place}")
            page.locator("main :is(h1, h2, [role=grid])").first.wait_for()
            expect(page.locator("[aria-label=Loading]")).to_have_count(0)
            for link in page.locator("main a").evaluate_all(ADDRESSES):
                assert link.startswith(("http", "mailto:")), link
            page.locator("details").evaluate_all("all => all.forEach(one => (one.open = true))")
        page.goto(f"{served.address}/#/mail")
        for mail in page.locator("main li button").all():
            mail.click()
        page.goto(f"{served.address}/#/runs/{BASE}/readme")
        page.get_by_role("button", name="Edit").click()
        page.get_by_label("Preview").get_by_text("alert(1)").first.wait_for()
        write_hostile_table(page, served.address)
        page.goto(f"{served.address}/#/launch")
        page.locator("summary").first.click()
        page.get_by_text("Width of <script>").first.wait_for()
        page.get_by_role("button", name="YAML").click()
        page.get_by_label("The config as YAML").fill(everything)
        page.get_by_role("alert").wait_for()
        for name in (PAYLOADS[0], "%3Cscript%3Ealert(1)%3C/script%3E"):
            page.goto(f"{served.address}/#/runs/{name}")
            page.goto(f"{served.address}/#/{name}")
        assert page.evaluate("window.pwned") is None


def write_hostile_project(folder: Path) -> None:
    """An experiment whose documentation has payloads; the form shows it."""
    write_shop(folder)
    parts = folder / "shop" / "parts.py"
    docs = "\n\n    ".join(repr(one)[1:-1] for one in PAYLOADS[:20])
    text = parts.read_text().replace("One layer.", f"One layer {PAYLOADS[2]}.\n\n    {docs}")
    help_text = f"dropout: Width of {PAYLOADS[0]} {PAYLOADS[2]}"
    parts.write_text(text.replace("dropout: Share of inputs silenced", help_text))
    config = folder / "config.yaml"
    config.write_text(f"desc: {json.dumps(PAYLOADS[0])}\n" + config.read_text())


def write_hostile_table(page: Page, address: str) -> None:
    """A table with payloads in columns and cells, typed, saved and exported."""
    page.goto(f"{address}/#/tables")
    page.get_by_label("Name of the table").fill("paper")
    page.get_by_role("button", name="New table").click()
    page.get_by_role("button", name="Column", exact=True).click()
    page.get_by_label("Name of column 1").fill(PAYLOADS[2])
    page.get_by_role("button", name="Row", exact=True).click()
    cell = page.get_by_role("textbox", name="Row 1, ")
    lines = [line for one in PAYLOADS if (line := " ".join(one.split())).isprintable()]
    cell.evaluate(
        """(one, text) => {
            const data = new DataTransfer();
            data.setData("text/plain", text);
            one.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
        }""",
        "\n".join(lines),
    )
    expect(page.get_by_role("textbox", name="Row ")).to_have_count(len(lines))
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("not saved").wait_for(state="detached")
    page.get_by_role("button", name="Export").click()
    for name in ("Markdown", "LaTeX", "CSV"):
        page.get_by_role("button", name=name).click()
        page.get_by_role("dialog").locator("pre").get_by_text("alert").first.wait_for()
    page.keyboard.press("Escape")


def plant(folder: Path, everything: str) -> None:
    """Put payloads into every text of a run."""
    labels = [
        one for one in PAYLOADS if "," not in one and len(one) <= MAX_LENGTH and one.isprintable()
    ]
    (folder / LABELS_FILE).write_text(json.dumps({"labels": labels[:MAX_LABELS]}))
    for name in ("run", "status", "result", "config/expanded", "config/provenance"):
        path = folder / f"{name}.json"
        value = json.loads(path.read_text())
        if name == "run":
            value |= {"tag": PAYLOADS[0], "command": everything, "device": PAYLOADS[2]}
            value |= {"machine": {"git": {"commit": PAYLOADS[4], "dirty": True}}}
        if name == "status":
            value |= {"host": PAYLOADS[1], "reason": PAYLOADS[6]}
        if name == "result":
            value |= {"exception_type": PAYLOADS[8], "message": everything, "traceback": everything}
        if name == "config/expanded":
            value |= {payload: payload for payload in PAYLOADS}
        if name == "config/provenance":
            place = {"source": PAYLOADS[3], "line": 1, "column": 1, "layer": "file"}
            value |= {payload: [{"value": payload, **place}] for payload in PAYLOADS}
        path.write_text(json.dumps(value))
    (folder / "README.md").write_text(f"# {PAYLOADS[0]}\n\n{everything}\n")
    (folder / "logs" / "run.log").write_text(everything)
    writer = RunWriter(RunFolder(folder))
    writer.log({f"{payload}/x": 1.0 for payload in PAYLOADS}, 999)
    for payload in PAYLOADS[:20]:
        save_media(writer, payload, payload, step=1, kind="text")
    writer.close()
    image = "<img src=x onerror=alert(1)>"
    code = {f"{i}{image}.py": payload.encode() for i, payload in enumerate(PAYLOADS)}
    keep_code(read_run(folder), code)
    Mailbox(folder.parents[2]).post(
        Mail(
            id="hostile",
            kind="finished",
            subject=everything[:2000],
            text=everything,
            time="2026-11-14T16:00:00+00:00",
            run=f"shop/{folder.parent.name}/{folder.name}",
        )
    )
