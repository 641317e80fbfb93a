"""Walks through the page as a user would take them, in a real browser with a real server."""

from __future__ import annotations

import re
import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from browser.conftest import serving
from browser.generated_runs import BASE, FAILED, SEEDS, WIDE
from comparing import make_run
from epochal.records.folder.folder import RecordOptions, create_run_folder
from epochal.records.folder.writer import RunWriter
from epochal.records.mail.mailbox import Mail, Mailbox

expect = pytest.importorskip("playwright.sync_api").expect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

    from browser.conftest import ServedRuns

PHONE = {"width": 390, "height": 844}
BUSY = {"error": {"what": "the answer took too long", "hint": "ask for less"}}
COMPARED = "#/compare?" + "&".join(f"run={run}" for run in (BASE, WIDE, *SEEDS))
PLACES = {
    "runs": ("#/runs", "baseline"),
    "groups": ("#/runs?group=seed", "3 groups"),
    "run": (f"#/runs/{BASE}", "Smoothing"),
    "failed": (f"#/runs/{FAILED}", "shape mismatch"),
    "compare": (f"{COMPARED}&bands=1", "Parameters"),
    "mail": ("#/mail", "baseline finished"),
    "queue": ("#/queue", "The queue is empty"),
    "sweeps": ("#/sweeps", "No sweeps"),
    "tables": ("#/tables", "results"),
    "table": ("#/tables/results", "0.9719"),
    "launch": ("#/launch", "How long to train"),
    "rerun": (f"#/launch?run={BASE}", "Run again with changes"),
    "readme": (f"#/runs/{BASE}/readme", "width 128: 0.97"),
    "config": (f"#/runs/{BASE}/config", "optim.lr"),
    "code": (f"#/runs/{BASE}/code", "class Mlp"),
    "log": (f"#/runs/{BASE}/log", "epoch 399"),
    "media": (f"#/runs/{BASE}/media", "samples/grid"),
    "checkpoints": (f"#/runs/{BASE}/checkpoints", "No checkpoints"),
    "machine": (f"#/runs/{BASE}/machine", "waiting for data"),
    "unknown": ("#/nowhere", "There is no such page"),
    "unknown-run": ("#/runs/nowhere", "There is no run of this name"),
    "unknown-table": ("#/tables/nowhere", "There is no table of this name"),
    "unknown-sweep": ("#/sweeps/nowhere", "There is no sweep of this name"),
}


def wait_for(page: Page, text: str) -> None:
    page.get_by_text(text).first.wait_for()


def rows_of(page: Page) -> list[str]:
    """The names of the runs in the table, from top to bottom."""
    found = page.locator(".body [role=row]").evaluate_all(
        "rows => rows.map(one => [+one.ariaRowIndex, one.querySelector('a')?.textContent])"
    )
    return [name for _, name in sorted(found)]


def test_every_page_fits_in_light_dark_and_at_phone_size(
    served: ServedRuns, open_page: Callable[..., Page], keep_screenshot: Callable[[Page, str], None]
) -> None:
    looks = {
        "light": {"color_scheme": "light"},
        "dark": {"color_scheme": "dark"},
        "phone": {"viewport": PHONE},
        "chinese": {"locale": "zh-CN"},
    }
    for look, options in looks.items():
        page = open_page(served, "#/runs", **options)
        for name, (place, text) in PLACES.items():
            page.goto(f"{served.address}/{place}")
            if look != "chinese":
                wait_for(page, text)
            page.locator("main :is(h1, h2, [role=grid])").first.wait_for()
            expect(page.locator(".loading")).to_have_count(0)
            if name == "runs" and look != "phone":  # whose table has no curves
                expect(page.locator(".body svg[role=img] path[d^=M]")).to_have_count(6)
            keep_screenshot(page, f"{name}-{look}")
            width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert width <= 0, f"{name} is {width} pixels too wide: {look}"
        theme, language = page.evaluate(
            "[document.documentElement.dataset.theme, document.documentElement.lang]"
        )
        assert theme == ("dark" if look == "dark" else "light")
        assert language == ("zh-CN" if look == "chinese" else "en")


def test_an_empty_project_says_what_to_type(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    with serving(tmp_path / "runs") as served:
        page = open_page(served)
        wait_for(page, "No runs yet")
        wait_for(page, "epochal run config.yaml")
        page.goto(f"{served.address}/#/mail")
        wait_for(page, "No mail")
        page.goto(f"{served.address}/#/compare")
        wait_for(page, "Nothing to compare")
        page.goto(f"{served.address}/#/launch")
        wait_for(page, "epochal serve --allow-launch")
        page.goto(f"{served.address}/#/tables")
        wait_for(page, "epochal table new paper")
        stranger = open_page(served, storage_state=None)
        wait_for(stranger, "Open the link that epochal serve printed")
        stranger.goto(served.link)  # it was used
        wait_for(stranger, "The link was used before")
        assert stranger.url == f"{served.address}/"


def test_runs_are_filtered_sorted_grouped_and_shown_with_chosen_columns(
    served: ServedRuns, open_page: Callable[..., Page]
) -> None:
    page = open_page(served)
    wait_for(page, "6 runs")
    assert rows_of(page) == ["augmented", "wide", "seeds", "seeds", "seeds", "baseline"]
    page.get_by_role("button", name="optim.lr").click()
    page.get_by_role("columnheader", name="optim.lr", expanded=None).locator("svg").wait_for()
    expect(page.locator(".body a").first).to_have_text("seeds")
    assert rows_of(page)[-1] == "wide"
    box = page.get_by_label("Filter runs")
    box.fill("optim.lr >")
    page.get_by_role("alert").wait_for()
    assert box.get_attribute("aria-invalid") == "true"
    assert len(rows_of(page)) == 6, "the old rows stay while a query is wrong"
    box.fill("model.wid")
    page.get_by_role("option", name="model.width").get_by_role("button").click()
    assert box.input_value() == "model.width"
    box.fill("model.width > 200")
    wait_for(page, "1 run")
    assert rows_of(page) == ["wide"]
    box.fill("model.width > 999")
    wait_for(page, "No run passes the filter")
    page.get_by_role("button", name="Clear").last.click()
    page.get_by_label("Group").select_option("seed")
    page.locator(".badge", has_text="3 runs").wait_for()
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("Find a column").fill("grad")
    page.get_by_label("grad_norm").check()
    page.get_by_role("columnheader", name="grad_norm").wait_for()
    page.reload()
    page.get_by_role("columnheader", name="grad_norm").wait_for()
    assert page.get_by_label("Group").input_value() == "seed"


def test_runs_are_labelled_grouped_by_label_and_archived(
    served: ServedRuns, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    shutil.copytree(served.root, tmp_path / "runs")
    trial = make_run(tmp_path / "runs/shop/t/20261116-100000-abcd", trial={"sweep": "s"})
    (trial.path / "README.md").write_text("# first trial\n")
    with serving(tmp_path / "runs") as own:
        page = open_page(own)
        for name in ("wide", "baseline"):
            page.get_by_label(f"Select {name}").check()
        page.get_by_role("button", name="Label").click()
        page.get_by_label("Labels to add").fill("paper, draft")
        page.get_by_role("button", name="Add", exact=True).click()
        page.get_by_role("button", name="Remove the label draft").click()
        expect(page.get_by_role("dialog").locator("li")).to_have_text(["paper"])
        page.keyboard.press("Escape")
        expect(page.locator(".body .badge", has_text="paper")).to_have_count(2)
        page.get_by_label("Filter runs").fill("label = paper")
        wait_for(page, "2 runs")
        page.get_by_label("Filter runs").fill("")
        page.get_by_label("Group").select_option("label")
        page.locator(".badge", has_text="2 runs").wait_for()
        page.get_by_label("Group").select_option("")
        wait_for(page, "6 runs")
        page.get_by_role("button", name="Archive").click()
        wait_for(page, "4 runs")
        page.get_by_label("include archived").check()
        wait_for(page, "6 runs")
        page.get_by_role("link", name="wide").click()
        page.get_by_role("button", name="Take out of the archive").click()
        page.get_by_role("button", name="Archive", exact=True).wait_for()
        page.locator(".badge", has_text="paper").wait_for()
        page.goto(f"{own.address}/#/runs")
        wait_for(page, "5 runs")
        page.get_by_label("include trials of sweeps (1)").check()
        page.get_by_role("link", name="first trial").wait_for()
        wait_for(page, "6 runs")


def test_keys_lead_from_the_list_to_a_comparison(
    served: ServedRuns, open_page: Callable[..., Page]
) -> None:
    page = open_page(served)
    wait_for(page, "6 runs")
    page.keyboard.press("?")
    wait_for(page, "Keyboard shortcuts")
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    for key in ("j", "j", "x", "j", "k", "j", "x"):
        page.keyboard.press(key)
    wait_for(page, "2 selected")
    page.keyboard.press("/")
    page.keyboard.type("c jx?")
    assert page.get_by_label("Filter runs").input_value() == "c jx?"
    page.get_by_label("Filter runs").fill("")
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    page.get_by_role("heading", name="Compare").wait_for()
    assert page.url.count("run=") == 2
    page.keyboard.press("m")
    wait_for(page, "baseline finished")
    assert page.title().startswith("(2) Mail")
    page.keyboard.press("r")
    wait_for(page, "6 runs")
    page.keyboard.press("d")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    for key in ("k", "k", "k", "Enter"):
        page.keyboard.press(key)
    page.get_by_role("heading", name="augmented").wait_for()


def test_a_run_shows_its_curves_and_a_zoom_shows_more(
    served: ServedRuns, open_page: Callable[..., Page]
) -> None:
    page = open_page(served, f"#/runs/{BASE}")
    charts = page.locator("article canvas")
    charts.nth(3).wait_for()
    with page.expect_request("**/api/series?*x=time*"):
        page.get_by_role("button", name="time").click()
    page.get_by_role("button", name="step", exact=True).click()
    page.get_by_label("log y").check()
    box = page.get_by_role("img", name="train/loss").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    for name in ("train/loss", "train/lr"):  # the cursor is shared
        page.locator("article header", has_text=name).get_by_text("step ").wait_for()
    with page.expect_request("**/api/series?*from=*"):
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.7, middle, steps=4)
        page.mouse.up()
    page.get_by_role("button", name="Zoom out").click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Export train/loss").click()
        page.get_by_role("button", name="CSV").click()
    text = saved.value.path().read_bytes()
    assert text.startswith(b"run,step,mean,min,max\r\ntrain/loss,0,")
    page.get_by_label("Find a metric").fill("grad")
    page.locator("article").nth(1).wait_for(state="detached")


def test_a_comparison_shows_bands_differences_and_code(
    served: ServedRuns, open_page: Callable[..., Page]
) -> None:
    page = open_page(served, COMPARED)
    page.get_by_role("button", name="Seed bands").click()
    page.locator("article").first.scroll_into_view_if_needed()
    wait_for(page, "seeds, 3 runs")
    assert "bands=1" in page.url
    expect(page.get_by_role("row", name="val/acc best").get_by_role("cell")).to_have_count(3)
    expect(page.get_by_role("row", name="val/acc best").get_by_role("cell").last).to_have_text(
        re.compile(r"^\s*0\.\d+ ± 0\.\d+\s*$")
    )
    cells = page.get_by_role("row", name="optim.lr").get_by_role("cell").all_inner_texts()
    assert cells == ["0.01", "0.003", "0.03", "0.03", "0.03"]
    page.get_by_role("button", name="Leave wide out").click()
    expect(page.get_by_role("row", name="optim.lr").get_by_role("cell")).to_have_count(4)
    assert page.url.count("run=") == 4
    page.get_by_label("Vertical axis").select_option("val/loss")
    page.get_by_role("img", name="val/loss · ").wait_for()
    assert "py=val%2Floss" in page.url
    expect(page.get_by_role("img", name="val/loss · ").locator("circle")).to_have_count(4)
    expect(page.get_by_role("img", name="Parallel").locator("path")).to_have_count(4)
    for kind, start in {"SVG": b"<svg xmlns", "PNG": b"\x89PNG", "CSV": b"run,tag,"}.items():
        with page.expect_download() as saved:
            page.get_by_role("button", name="Export Scatter plot").click()
            page.get_by_role("button", name=kind).last.click()
        assert saved.value.path().read_bytes().startswith(start)
    page.goto(f"{served.address}/#/compare?run={BASE}&run={WIDE}")
    wait_for(page, "+WIDTH = 512")


def test_logs_are_searched_and_texts_shown_in_chinese(
    served: ServedRuns, open_page: Callable[..., Page], keep_screenshot: Callable[[Page, str], None]
) -> None:
    page = open_page(served, f"#/runs/{BASE}/log", locale="zh-CN")
    page.get_by_label("搜索日志").fill("EPOCH  17 ")
    page.locator("mark", has_text="epoch  17").wait_for()
    wait_for(page, "1 行")
    keep_screenshot(page, "log-chinese")
    page.get_by_role("button", name="EN").click()
    page.get_by_label("Search the log").wait_for()
    assert page.evaluate("document.documentElement.lang") == "en"
    page.reload()
    page.get_by_label("Search the log").wait_for()


def test_new_runs_points_and_log_lines_appear_by_themselves(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    with serving(tmp_path / "runs") as served:
        page = open_page(served)
        wait_for(page, "No runs yet")
        folder = create_run_folder(RecordOptions(log_dir=served.root), project="shop", tag="fresh")
        writer = RunWriter(folder)
        writer.write_readme("fresh")
        writer.write_config([], "", "yaml", {})
        writer.write_run({"project": "shop", "tag": "fresh", "runner": "train"})
        writer.write_status("running")
        writer.log({"train/loss": 2.5}, 1)
        writer.sync()
        page.get_by_role("link", name="fresh").click()
        chart = page.locator("article", has_text="train/loss")
        chart.get_by_text("2.5").wait_for()
        log = writer.path / "logs" / "run.log"
        log.parent.mkdir(exist_ok=True)
        log.write_text("first line\n")
        writer.log({"train/loss": 1.25}, 2)
        writer.sync()
        chart.get_by_text("1.25").wait_for()
        page.get_by_role("link", name="Log").click()
        wait_for(page, "first line")
        with log.open("a") as file:
            file.write("second line\n")
        wait_for(page, "second line")
        writer.close()


def test_typed_readme_survives_other_tabs_and_reloads_and_a_deleted_run_says_so(
    served: ServedRuns, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    shutil.copytree(served.root, tmp_path / "runs")
    with serving(tmp_path / "runs") as own:
        page = open_page(own, f"#/runs/{BASE}/readme")
        text = page.get_by_label("Text in Markdown")
        page.get_by_role("button", name="Edit").click()
        text.fill("# half of a thought\n")
        page.get_by_role("link", name="Charts").click()
        page.get_by_label("Smoothing").wait_for()
        page.get_by_role("link", name="README").click()
        expect(text).to_have_value("# half of a thought\n")
        page.reload()
        expect(text).to_have_value("# half of a thought\n")
        page.get_by_role("button", name="Cancel").click()
        page.reload()
        page.get_by_role("button", name="Edit").wait_for()
        assert text.count() == 0, "what was cancelled is gone"

        [folder] = own.root.glob(f"*/*/{BASE}")
        shutil.rmtree(folder)
        page.get_by_role("alert").filter(has_text="deleted or moved").wait_for()


def test_a_readme_is_edited_mail_is_read_and_a_run_deleted(
    served: ServedRuns, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    shutil.copytree(served.root, tmp_path / "runs")
    with serving(tmp_path / "runs") as own:
        own.link = own.link.replace("/open#", f"/open/runs/{BASE}#")  # as serve --run prints it
        page = open_page(own)
        page.get_by_role("heading", name="baseline").wait_for()
        assert page.url == f"{own.address}/#/runs/{BASE}"
        page.get_by_role("link", name="README").click()
        page.get_by_role("button", name="Edit").click()
        page.get_by_label("Text in Markdown").fill("# renamed\n\nIt **worked**.\n")
        page.get_by_role("button", name="Save").click()
        page.get_by_role("heading", name="renamed").first.wait_for()
        assert page.locator("strong", has_text="worked").count() == 1
        page.goto(f"{own.address}/#/mail")
        page.get_by_role("button", name="baseline finished").click()
        expect(page).to_have_title(re.compile(r"\(1\) "))
        page.get_by_role("link", name="Open the run").click()
        page.get_by_role("heading", name="renamed").first.wait_for()
        page.goto(f"{own.address}/#/runs")
        page.get_by_label("Select wide").check()
        page.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        wait_for(page, "5 runs")
        assert not (own.root / "shop" / "wide" / WIDE).exists()


FAKE_NOTIFICATIONS = """
window.shown = [];
window.Notification = class {
  static permission = "default";
  static requestPermission = async () => (Notification.permission = "granted");
  constructor(title, { body }) { window.shown.push(body); }
};
Object.defineProperty(document, "hidden", { get: () => true });
"""  # a browser without a screen denies the real ones


def test_new_mail_is_counted_in_the_title_and_notified_on_request(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    with serving(tmp_path / "runs") as served:
        page = open_page(served)
        page.add_init_script(FAKE_NOTIFICATIONS)
        page.goto(f"{served.address}/#/mail")
        page.reload()
        page.get_by_role("button", name="Notify me").click()
        page.get_by_role("button", name="Notify me").wait_for(state="detached")
        page.get_by_text("live", exact=True).wait_for()
        time = "2026-11-16T10:00:00+00:00"
        mail = Mail(id="1", kind="finished", subject="done", text="0.9", time=time)
        Mailbox(served.root).post(mail)
        wait_for(page, "done")
        expect(page).to_have_title(re.compile(r"^\(1\) "))
        assert page.evaluate("window.shown") == ["1 unread"]


def test_the_page_reports_that_the_server_stopped_and_runs_again(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    """The server is killed while a user types: the page connects to the next one by itself."""
    run = make_run(tmp_path / "runs" / "shop" / "t" / "20261116-100000-abcd").path
    with serving(tmp_path / "runs") as served:
        page = open_page(served, f"#/runs/{run.name}/readme")
        page.get_by_role("button", name="Write").click()
        page.get_by_role("textbox").fill("# typed before")
        page.get_by_text("live", exact=True).wait_for()
        served.child.signal(signal.SIGKILL)
        page.get_by_text("reconnecting").wait_for()
        page.get_by_role("textbox").fill("# typed meanwhile")
        page.get_by_role("button", name="Save").click()
        wait_for(page, "the server does not answer")
        expect(page.get_by_role("textbox")).to_have_value("# typed meanwhile")
    port = int(served.address.rpartition(":")[2])
    with serving(tmp_path / "runs", port=port):
        page.get_by_text("live", exact=True).wait_for()
        page.get_by_role("button", name="Save").click()
        page.get_by_role("button", name="Edit", exact=True).wait_for()
        assert (run / "README.md").read_text().startswith("# typed meanwhile\n")
    page.get_by_text("reconnecting").wait_for()
    with serving(tmp_path / "runs", "--sign-out", port=port):
        wait_for(page, "Open the link that epochal serve printed")


def test_curves_are_compared_although_the_differences_cannot_be_read(
    served: ServedRuns, open_page: Callable[..., Page]
) -> None:
    page = open_page(served)
    page.route("**/api/compare?*", lambda route: route.fulfill(status=503, json=BUSY))
    page.goto(f"{served.address}/#/compare?run={BASE}&run={WIDE}")
    expect(page.locator("article canvas").first).to_be_visible()
    expect(page.get_by_text("the answer took too long")).to_be_visible()
    page.unroute("**/api/compare?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Parameters")).to_be_visible()
