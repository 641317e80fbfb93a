"""What the page may change: README, mail, deleting runs; and the comparison of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comparing import keep_code, make_run
from epochal.records import read_run
from epochal.records.mail.mailbox import Mail, Mailbox
from unit.web.conftest import RUNS

if TYPE_CHECKING:
    from pathlib import Path

    from browsing import Browser


def test_readme_is_replaced_unless_it_changed_meanwhile(browser: Browser, runs: Path) -> None:
    path, file = f"/api/runs/{RUNS[0]}/readme", runs / "shop" / "t" / RUNS[0] / "README.md"
    text = "# better\n\n<script>alert(1)</script>"
    done = browser.send("PUT", path, body={"text": text, "before": "# run 0\n\nWhy not?\n"})
    assert (done.status, done.json["readme"]) == (200, f"{text}\n")
    assert file.read_text() == f"{text}\n"
    assert browser.get("/api/runs", where="tag = better")["total"] == 1
    late = browser.send("PUT", path, body={"text": "# other", "before": "# run 0\n\nWhy not?\n"})
    assert (late.status, late.what) == (409, "the README changed meanwhile")
    assert file.read_text() == f"{text}\n"


def test_readme_does_not_write_through_a_link(browser: Browser, runs: Path, tmp_path: Path) -> None:
    file = runs / "shop" / "t" / RUNS[0] / "README.md"
    outside = tmp_path / "outside.md"
    outside.write_text("mine")
    file.unlink()
    file.symlink_to(outside)
    browser.send("PUT", f"/api/runs/{RUNS[0]}/readme", body={"text": "# changed"})
    assert outside.read_text() == "mine"


def test_runs_are_labelled_and_archived(browser: Browser, runs: Path) -> None:
    ids = list(RUNS[:2])
    body = {"ids": ids, "add": ["<b>paper</b>", "baseline"]}
    assert browser.send("POST", "/api/runs/label", body=body).json == {"changed": ids}
    assert browser.send("POST", "/api/runs/label", body=body).json == {"changed": []}
    less = {"ids": [RUNS[1]], "remove": ["baseline"]}
    assert browser.send("POST", "/api/runs/label", body=less).json == {"changed": [RUNS[1]]}
    assert browser.get(f"/api/runs/{RUNS[1]}")["labels"] == ["<b>paper</b>"]
    found = browser.get("/api/runs", where="label = baseline")["rows"]
    assert [(one["id"], one["labels"]) for one in found] == [
        (RUNS[0], ["<b>paper</b>", "baseline"])
    ]
    assert browser.get("/api/runs", group="label")["total"] == 3
    for is_archived, total in ((True, 2), (True, 2), (False, 3)):
        body = {"ids": [RUNS[0]], "archived": is_archived}
        browser.send("POST", "/api/runs/archive", body=body)
        assert browser.get("/api/runs")["total"] == total
        whole = browser.get("/api/runs", archived="true")
        assert (whole["total"], whole["rows"][2]["archived"]) == (3, is_archived)
        assert browser.get(f"/api/runs/{RUNS[0]}")["archived"] is is_archived


def test_impossible_labels_are_refused(browser: Browser, runs: Path) -> None:
    for body, status in (
        ({"ids": [RUNS[0]], "add": ["a,b"]}, 422),
        ({"ids": [RUNS[0]], "add": ["x" * 61]}, 422),
        ({"ids": [RUNS[0]], "add": [str(number) for number in range(33)]}, 422),
        ({"ids": ["unknown"], "add": ["a"]}, 404),
        ({"ids": []}, 422),
    ):
        assert browser.send("POST", "/api/runs/label", body=body).status == status, body
    assert not list(runs.glob("*/*/*/labels.json"))


def test_runs_are_deleted_but_not_those_that_others_need(browser: Browser, runs: Path) -> None:
    child = make_run(
        runs / "shop" / "t" / "20261115-100000-dddd",
        format=1,
        id="20261115-100000-dddd",
        parent={"run": RUNS[1], "kind": "weights"},
    )
    odd = make_run(runs / "mine" / "t" / "notes")
    (odd.path / "thesis.tex").write_text("years of work")
    done = browser.send("POST", "/api/runs/delete", body={"ids": [RUNS[0], RUNS[1], "notes"]})
    assert done.json["deleted"] == [RUNS[0]]
    kept = {one["id"]: one["why"] for one in done.json["kept"]}
    assert kept.keys() == {RUNS[1], "notes"}
    assert "20261115-100000-dddd" in kept[RUNS[1]]
    assert (odd.path / "thesis.tex").exists()
    assert child.path.exists()
    assert not (runs / "shop" / "t" / RUNS[0]).exists()
    assert browser.send("GET", f"/api/runs/{RUNS[0]}").status == 404
    again = browser.send("POST", "/api/runs/delete", body={"ids": [RUNS[0]]})
    assert again.status == 404
    both = {"ids": [RUNS[0], RUNS[2]]}  # another page deleted the first one
    labelled = browser.send("POST", "/api/runs/label", body={**both, "add": ["x"], "remove": []})
    assert labelled.json["changed"] == [RUNS[2]]
    done = browser.send("POST", "/api/runs/delete", body=both)
    assert (done.json["deleted"], done.json["kept"]) == (both["ids"], [])


def test_mail_is_listed_and_marked(browser: Browser, runs: Path) -> None:
    assert browser.get("/api/mail") == {"unread": 0, "mails": []}
    box = Mailbox(runs)
    for i in range(3):
        box.post(
            Mail(
                id=f"abc{i}",
                kind="failed",
                subject=f"mail {i}",
                text="why",
                time=f"2026-11-14T10:0{i}:00+00:00",
                run=f"shop/t/{RUNS[0]}",
            )
        )
    found = browser.get("/api/mail")
    assert [one["subject"] for one in found["mails"]] == ["mail 2", "mail 1", "mail 0"]
    assert (found["unread"], found["mails"][0]["run"]) == (3, RUNS[0])
    assert found["mails"][0]["sweep"] == ""
    done = browser.send("POST", "/api/mail/read", body={"ids": ["abc0", "unknown"]})
    assert done.json == {"changed": 1, "unread": 2}
    browser.send("POST", "/api/mail/read", body={"ids": ["abc1"], "archived": True})
    assert [one["id"] for one in browser.get("/api/mail")["mails"]] == ["abc2", "abc0"]
    about = {"subject": "done", "text": "", "time": "2026-11-14T11:00:00+00:00"}
    box.post(Mail(id="abc3", kind="sweep_done", run="sweeps/grid-20261114-ab", **about))
    newest = browser.get("/api/mail")["mails"][0]
    assert (newest["run"], newest["sweep"]) == ("", "grid-20261114-ab")


def test_runs_are_compared(browser: Browser, runs: Path) -> None:
    keep_code(read_run(runs / "shop" / "t" / RUNS[0]), {"a.py": b"x = 1\n", "b.py": b""})
    keep_code(read_run(runs / "shop" / "t" / RUNS[2]), {"a.py": b"x = 2\n", "c.py": b"1\n"})
    found = browser.get("/api/compare", run=[RUNS[0], RUNS[2]])
    assert [one["id"] for one in found["runs"]] == [RUNS[0], RUNS[2]]
    values = {one["key"]: one["values"] for one in found["parameters"]}
    assert values["seed"] == [0, 2]
    assert values["optim.lr"] == [0.1, 0.30000000000000004]
    code = {one["path"]: one for one in found["code"]}
    assert {path: one["status"] for path, one in code.items()} == {
        "a.py": "changed",
        "b.py": "removed",
        "c.py": "added",
    }
    assert "-x = 1\n+x = 2" in code["a.py"]["diff"]
    metrics = {one["name"]: one["last"] for one in found["metrics"]}
    assert metrics["val/acc"] == [0.6, 0.8]
    quick = browser.get("/api/compare/metrics", run=[RUNS[0], RUNS[2]])
    assert [one["id"] for one in quick["runs"]] == [RUNS[0], RUNS[2]]
    assert {*quick["metrics"]} == {*metrics}
    assert quick["runs"][1]["status"] == found["runs"][1]["status"]
    assert browser.send("GET", "/api/compare", query={"run": RUNS[0]}).status == 422
    twice = {"run": [RUNS[0], RUNS[0]]}
    assert browser.send("GET", "/api/compare", query=twice).status == 409
