from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from tests.unit.records.index.made import make_run

from epochal.records.index.index_database import RUN_COLUMNS, create_tables
from epochal.records.index.refresh import refresh_tables
from epochal.records.index.run_rows import read_run_rows

if TYPE_CHECKING:
    from pathlib import Path


def test_a_run_becomes_a_row_params_metrics_and_text(tmp_path: Path) -> None:
    folder = make_run(tmp_path, tag="warm", desc="does it help", lr=0.25, seed=7, loss=0.5)
    rows = read_run_rows(folder)
    assert {*rows.values, "path", "stamp"} == set(RUN_COLUMNS)
    wanted = {
        "run": folder.name,
        "tag": "warm",
        "desc": "does it help",
        "status": "finished",
        "seed": 7,
        "step": 2,
        "best": 0.5,
        "seconds": 1.5,
        "result": '{"val/loss":0.5}',
        "points": 3,
        "damage": "",
    }
    assert {name: rows.values[name] for name in wanted} == wanted
    assert {one.key: one.number for one in rows.params}["optim.lr"] == 0.25
    assert rows.metrics == [("val/loss", 0.5, 0.5, 2.5, 2, 3)]
    assert "does it help" in rows.words[0]
    assert "optim.lr 0.25" in rows.words[1]
    assert "optim.momentum 0.9" in rows.words[2]


def test_overrides_of_a_resumed_run_count(tmp_path: Path) -> None:
    config = {"seed": 0, "optim": {"lr": 0.25, "momentum": 0.9}}
    for overrides, lr in ((["optim.lr=0.5"], 0.5), ([], 0.25), (["=", "a.b..c=["], 0.25)):
        attempts = [{"attempt": 0}, {"attempt": 1, "overrides": overrides}]
        folder = make_run(tmp_path, lr=0.25, attempts=attempts)
        (folder / "config" / "expanded.yaml").write_text(json.dumps(config))
        known = {one.key: one for one in read_run_rows(folder).params}
        assert known["optim.lr"].number == lr, overrides
        assert known["optim.momentum"].is_default


def test_large_seeds_are_exact(tmp_path: Path) -> None:
    for seed in (2**53 + 1, 2**63 - 1, 2**64 - 1, -(2**63)):
        rows = read_run_rows(make_run(tmp_path, seed=seed))
        assert int(rows.values["seed"]) == seed
        [one] = [one for one in rows.params if one.key == "seed"]
        assert (one.text, one.number) == (str(seed), seed if seed < 2**63 else float(seed))


def test_a_run_without_a_result_has_the_best_value_so_far(tmp_path: Path) -> None:
    folder = make_run(tmp_path, status=None)
    path = folder / "config" / "provenance.json"
    known = json.loads(path.read_text())
    for monitor, best in (("-val/loss", 0.5), ("+val/loss", 2.5)):
        path.write_text(json.dumps({**known, "monitor": [{"value": monitor, "layer": "file"}]}))
        assert read_run_rows(folder).values["best"] == best


def test_the_step_of_a_killed_run_comes_from_its_points(
    tmp_path: Path,
) -> None:
    folder = make_run(tmp_path, status=None)
    status = json.loads((folder / "status.json").read_text())
    told = {**status, "updated": status["started"], "step": 0}
    (folder / "status.json").write_text(json.dumps(told))
    values = read_run_rows(folder).values
    assert (values["step"], values["seconds"]) == (2, None)


def test_the_last_value_is_that_of_the_result(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    result = {"metrics": {"val/loss": 0.75, "test/acc": 0.9}, "best": 0.5}
    (folder / "result.json").write_text(json.dumps(result))
    assert read_run_rows(folder).metrics == [
        ("val/loss", 0.75, 0.5, 2.5, 2, 3),
        ("test/acc", 0.9, None, None, 2, 0),
    ]


def test_a_parent_is_named_with_its_kind(tmp_path: Path) -> None:
    values = read_run_rows(make_run(tmp_path, parent={"run": "20260101-1", "kind": "trial"})).values
    assert (values["parent"], values["parent_kind"]) == ("20260101-1", "trial")


def test_tag_and_description_come_from_the_readme(tmp_path: Path) -> None:
    folder = make_run(tmp_path, desc="before")
    (folder / "README.md").write_text("# other tag\n\nafter\n")
    values = read_run_rows(folder).values
    assert (values["tag"], values["desc"]) == ("other tag", "after")


def test_the_digest_of_the_code_is_read(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    assert read_run_rows(folder).values["code"] == ""
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code" / "manifest.json").write_text('{"digest": "abc"}')
    assert read_run_rows(folder).values["code"] == "abc"


def test_the_error_of_a_run_is_one_line(tmp_path: Path) -> None:
    folder = make_run(tmp_path, status="failed")
    result = {"attempt": 0, "exception_type": "ValueError", "message": "bad\nworse"}
    (folder / "result.json").write_text(json.dumps(result))
    assert read_run_rows(folder).values["error"] == "ValueError: bad"


def test_damaged_files_are_read_without_a_crash(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    damaged = ["", "{", "[1]", '{"seed": []}', "\x00\xff", '{"step": 1e999, "seed": "x", "tag": 3}']
    origins = (
        '{"a": [{"value": {"x": [1]}}], "a.0": [{"value": "\\ud800"}], "\\udc00": [{"value": 1}]}'
    )
    cases = [(name, damaged) for name in ("run.json", "status.json", "result.json", "README.md")]
    cases += [("config/provenance.json", ["", "[]", '{"a": null, "b": [3], "c": [{}]}', origins])]
    for name, texts in cases:
        whole = (folder / name).read_bytes()
        for text in texts:
            (folder / name).write_text(text)
            rows = read_run_rows(folder)
            assert rows.values["run"] == folder.name, (name, text)
            for one in rows.params:
                (one.key + (one.text or "")).encode()
        (folder / name).write_bytes(whole)


def test_without_provenance_values_come_from_the_expanded_config(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    (folder / "config" / "provenance.json").unlink()
    (folder / "config" / "expanded.yaml").write_text("optim: {lr: 0.5}\n")
    assert [tuple(one) for one in read_run_rows(folder).params] == [("optim.lr", "0.5", 0.5, False)]


def test_an_empty_folder_that_is_named_like_a_run_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "20260101-000000-abcd"
    folder.mkdir()
    values = read_run_rows(folder).values
    assert values["status"] == "damaged"
    assert "run.json: missing" in str(values["damage"])


def test_random_damage_does_not_stop_a_refresh(tmp_path: Path) -> None:
    """Bytes are changed, lost and doubled, as disks and hurried editors do it."""
    draw, folder = random.Random(0), make_run(tmp_path, parent={"run": "x", "kind": "fold"})
    files = [path for path in folder.rglob("*") if path.is_file()]
    whole = {path: path.read_bytes() for path in files}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as tables:
        create_tables(tables)
        for _ in range(120):
            path = draw.choice(files)
            data = bytearray(whole[path])
            for _ in range(draw.randrange(1, 8)):
                place = draw.randrange(len(data) + 1)
                end = place + draw.choice((0, 1, 1, 20))
                data[place:end] = draw.choice((b"", b"[", b"null", b"9" * 30, b"\xff", b"-1e999"))
            path.write_bytes(data)
            done = refresh_tables(tables, tmp_path, progress=lambda _: None, is_all=True)
            assert done.total == 1
            path.write_bytes(whole[path])
