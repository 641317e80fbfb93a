"""What ``print`` and a notebook show of a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epochal.engine import RunResult
from indexed import record_run

CONFIG = {"monitor": "+val/acc", "model": {"width": 8, "api_key": "hush-hush-hush"}}


def result_of(**facts: Any) -> RunResult:
    known = {"status": "finished", "reason": "max_epochs", "config": CONFIG, "seconds": 75.2}
    return RunResult(**known | facts)


def test_the_text_of_a_result_is_one_short_line() -> None:
    metrics = {f"val/m{i}": 0.5 for i in range(50)}
    done = result_of(best=0.91234, steps=80, dir=Path("runs/x"), metrics=metrics)
    assert repr(done) == (
        "RunResult(status='finished', reason='max_epochs', best=0.9123, steps=80, seconds=75.2, "
        "dir='runs/x')"
    )
    failed = result_of(
        status="failed", reason="exception", exception_type="KeyError", message="'x'\nmore"
    )
    assert "error=\"KeyError: 'x'\"" in repr(failed)


def test_html_has_status_best_metrics_time_and_folder() -> None:
    metrics = {"train/epoch/loss": 0.5, "val/acc": 0.75, "val/<b>": 1.0}
    folds = {"best": 0.011, "val/acc": 0.022}
    html = result_of(
        best=0.91234, steps=80, epochs=4, dir=Path("runs/x"), metrics=metrics, spread=folds
    )._repr_html_()
    for text in (
        "<b>finished</b> (max_epochs)",
        "<b>0.9123</b> ± 0.011 (val/acc)",
        "0.75 ± 0.022",
        "val/&lt;b&gt;",
        "train/epoch/loss",
        "4 epochs, 80 steps",
        "1 min 15 s",
        'href="runs/x/README.md"',
    ):
        assert text in html, text
    assert "svg" not in html  # there is no such record


def test_html_of_many_metrics_stays_short() -> None:
    html = result_of(metrics={f"val/m{i}": 0.5 for i in range(50)})._repr_html_()
    assert html.count("<tr>") < 20
    assert "and 38 more" in html


def test_errors_are_shown_without_secrets() -> None:
    failed = result_of(
        status="failed",
        reason="exception",
        exception_type="ValueError",
        message="<no> hush-hush-hush",
    )
    assert "ValueError: &lt;no&gt; &lt;redacted&gt;" in failed._repr_html_()
    assert "hush" not in repr(failed)


def test_html_has_the_curve_of_the_monitored_metric(tmp_path: Path) -> None:
    html = result_of(dir=record_run(tmp_path))._repr_html_()
    assert html.count("<svg") == 1
    assert ">val/acc</tspan>" in html


def test_a_damaged_record_has_no_curve(tmp_path: Path) -> None:
    folder = record_run(tmp_path)
    (folder / "series.jsonl").write_bytes(b"\xff\x00")
    (folder / "metrics.bin").write_bytes(b"\x00" * 500)
    assert "svg" not in result_of(dir=folder)._repr_html_()
