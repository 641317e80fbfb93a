"""WandB: what the package itself writes offline, read back."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import UnidentifiedImageError

from epochal.engine.tracking.mirror import Entry
from epochal.engine.tracking.tracker import CLOSE_SECONDS, TrackedRun
from epochal.hooks.wandb import WandB, WandBSink, find_limits
from epochal.records.folder.media import Media, encode_png
from tracked import Series, carry_out_tracked, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the package


def stored(folder: Path) -> list[Any]:
    """Every entry of the offline file."""
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()  # waits for its other process, which writes
    (path,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    found = []
    for data in chunks(path.read_bytes()):
        entry = wandb_internal_pb2.Record()
        entry.ParseFromString(data)
        found.append(entry)
    return found


def chunks(data: bytes) -> Iterator[bytes]:
    """The entries of a LevelDB log after the W&B header; entries can span blocks."""
    assert data.startswith(b":W&B")
    block, head, place, whole = 32768, 7, 7, b""
    while place < len(data):
        if block - place % block < head:
            place += block - place % block
            continue
        size, kind = struct.unpack_from("<HB", data, place + 4)
        whole += data[place + head : place + head + size]
        place += head + size
        if kind in (1, 4):  # full, or the last part
            yield whole
            whole = b""


def read(folder: Path) -> Series:
    series: Series = {}
    for entry in stored(folder):
        if entry.WhichOneof("record_type") != "history":
            continue
        items = {
            ".".join(one.nested_key) or one.key: json.loads(one.value_json)
            for one in entry.history.item
        }
        step = items.pop("_step", entry.history.step.num)
        for name in (name for name in items if not name.startswith("_")):
            assert step not in series.setdefault(name, {})
            series[name][step] = items[name]
    return series


def test_the_history_equals_the_record(tmp_path: Path) -> None:
    hook = WandB(project="digits", mode="offline", group="g", every="2st")
    folder, result = carry_out_tracked(tmp_path, hook)
    assert result.ok, result.message
    assert read(folder) == recorded(folder)
    (about,) = [one.run for one in stored(folder) if one.WhichOneof("record_type") == "run"]
    assert (about.run_id, about.project) == (folder.name, "digits")
    assert (about.display_name, about.notes, about.run_group) == ("tiny", "to see", "g")


def test_an_earlier_step_is_not_sent(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "expanded.yaml").write_text("optim: {lr: 0.25}\n")
    sink = WandB(mode="offline").open(TrackedRun(tmp_path, "", "", "tests"))
    sink.write([Entry(5, 0.0, {"a": 1.0}), Entry(4, 0.0, {"a": 2.0}), Entry(5, 0.0, {"b": 3.0})])
    assert sink.read_known(["a", "c"]) == {"a": 5}
    sink.close(has_failed=True)
    assert read(tmp_path) == {"a": {5: 1.0}, "b": {5: 3.0}}
    (about,) = [one.run for one in stored(tmp_path) if one.WhichOneof("record_type") == "run"]
    config = {one.key: json.loads(one.value_json) for one in about.config.update}
    assert config["optim"] == {"lr": 0.25}


def test_a_resumed_run_knows_what_was_sent(tmp_path: Path) -> None:
    source = TrackedRun(tmp_path, "", "", "tests")
    for step in (5, 6):
        sink = WandB(mode="offline").open(source)
        assert sink.read_known(["a"]) == ({"a": 5} if step == 6 else {})
        sink.write([Entry(step - 2, 0.0, {"a": 0.0})] if step == 6 else [])
        sink.write([Entry(step, 0.0, {"a": float(step)})])
        sink.close(has_failed=False)
    assert sink.read_known(["a"]) == {"a": 6}


PAGES = {
    "a.html": "<b>bold</b>",
    "b.txt": "1 < 2\nso",
    "c.csv": "name,acc\nx,0.5\ny\n",
    "d.csv": "",
}


def test_supported_media_are_in_the_history_at_their_steps(tmp_path: Path) -> None:
    (tmp_path / "pixel.png").write_bytes(encode_png(np.zeros((4, 5, 3), np.uint8)))
    (tmp_path / "broken.png").write_bytes(b"no image")
    for name, text in {**PAGES, "speech.wav": "RIFF", "clip.mp4": "", "weights.npy": ""}.items():
        (tmp_path / name).write_text(text)
    sink = WandB(mode="offline").open(TrackedRun(tmp_path, "", "", "tests"))
    sink.write([Entry(3, 0.0, {"loss": 1.0})])
    for path in sorted(tmp_path.glob("*.*")):
        media = Media("file", path.stem, 3, path)
        with suppress(UnidentifiedImageError):
            sink.show(media)
        assert sink.has(media) == (path.suffix != ".npy" and path.stem != "broken")
    sink.write([Entry(4, 0.0, {"loss": 0.5})])
    late = Media("file", "late", 3, tmp_path / "b.txt")
    sink.show(late)  # its step is over
    assert not sink.has(late)
    sink.close(has_failed=False)
    found = read(tmp_path)
    assert found.pop("loss") == {3: 1.0, 4: 0.5}
    shown: dict[str, dict[str, Any]] = {}
    for name, points in found.items():  # such as pixel/file.width
        shown.setdefault(name.rpartition(".")[0], {})[name.rpartition(".")[2]] = points[3]
    assert {name: one["_type"] for name, one in shown.items()} == {
        "a/file": "html-file",
        "b/file": "html-file",
        "c/file": "table-file",
        "d/file": "table-file",
        "clip/file": "video-file",
        "pixel/file": "image-file",
        "speech/file": "audio-file",
    }
    assert (shown["pixel/file"]["width"], shown["pixel/file"]["height"]) == (5, 4)
    (root,) = (tmp_path / "wandb").glob("offline-run-*/files")
    assert (root / shown["a/file"]["path"]).read_text() == "<b>bold</b>"
    assert (root / shown["b/file"]["path"]).read_text() == "<pre>1 &lt; 2\nso</pre>"
    table = json.loads((root / shown["c/file"]["path"]).read_text())
    assert (table["columns"], table["data"]) == (["name", "acc"], [["x", 0.5], ["y", ""]])


def test_closing_has_a_time_limit_where_supported() -> None:
    import wandb

    limits = find_limits(wandb)
    assert limits == {"finish_timeout": CLOSE_SECONDS, "finish_timeout_raises": True}
    assert find_limits(SimpleNamespace(Settings=object)) == {}


def test_a_timeout_names_the_command_that_sends_the_rest(tmp_path: Path) -> None:
    class Slow:
        settings = SimpleNamespace(sync_dir="wandb/run-1")

        def finish(self, *, exit_code: int) -> None:
            raise TimeoutError("Timed out finishing run.")

    told = "not everything was sent within 30 s; `wandb sync wandb/run-1` sends the rest"
    with pytest.raises(TimeoutError, match=told):
        WandBSink(None, Slow(), tmp_path / "known.json").close(has_failed=False)


@pytest.mark.parametrize(
    ("hook", "text"),
    [(WandB(), "W&B, online"), (WandB(project="p", mode="offline"), "project p, offline")],
)
def test_the_description_names_project_and_mode(hook: WandB, text: str) -> None:
    assert hook.describe(None) == text


def test_the_command_line_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["epochal", "run", "--api-key", "canary-9876"])
    WandB(mode="offline").open(TrackedRun(tmp_path, "", "", "tests")).close(has_failed=False)
    assert stored(tmp_path)
    for path in (tmp_path / "wandb").rglob("*"):
        assert not path.is_file() or b"canary-9876" not in path.read_bytes()
