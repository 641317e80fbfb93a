"""Data, weights and packed runs on an S3 server: moto's, which answers over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import s3fs
from moto.server import ThreadedMotoServer

import epochal as ep
from epochal.checkpoint.weights import load_weights, locate_weights
from epochal.durable.remote import RemoteError, open_output
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A store with the bucket ``shelf``."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "word",
        "AWS_DEFAULT_REGION": "us-east-1",
        "EPOCHAL_DATA_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    store = s3fs.S3FileSystem()
    store.mkdir("shelf")
    try:
        yield store
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()


def test_data_weights_and_runs_live_on_s3(shelf: Any, shop: Path, epochal, tmp_path: Path) -> None:
    # Data: copied once, and again when they change.
    for part in range(2):
        shelf.pipe(f"shelf/part-{part}.jsonl", f'{{"id": {part}}}\n'.encode())
    chain = ep.data.chain(ep.data.Jsonl("s3://shelf/part-*.jsonl"), ep.data.Shuffle())
    assert sorted(row["id"] for row in chain) == [0, 1]
    assert len(list((tmp_path / "cache").iterdir())) == 2
    shelf.pipe("shelf/part-0.jsonl", b'{"id": 7}\n{"id": 8}\n')
    shelf.invalidate_cache()
    again = ep.data.chain(ep.data.Jsonl("s3://shelf/part-*.jsonl"))
    assert [row["id"] for row in again] == [7, 8, 1]

    # A run goes there and comes back.
    assert epochal("run", "config.yaml", "--device", "cpu").code == 0
    packed = epochal("pack", "last", "s3://shelf/")
    assert packed.code == 0, packed.err
    (name,) = [one for one in shelf.ls("shelf") if one.endswith(".tar")]
    back = epochal("unpack", f"s3://{name}", "--runs-dir", tmp_path / "there")
    assert back.code == 0, back.err

    # Its weights, as a file and as a checkpoint.
    checkpoints = Path(back.out.split()[-1]) / "checkpoints"
    folder = next(one for one in sorted(checkpoints.iterdir()) if (one / "manifest.json").exists())
    shelf.put(str(checkpoints / "final.safetensors"), "shelf/final.safetensors")
    shelf.put(str(folder), "shelf/checkpoint", recursive=True)
    assert load_weights(locate_weights("s3://shelf/final.safetensors"))
    start = ("run", "config.yaml", "--device", "cpu", "train.for=1st")
    done = epochal(*start, "init_from=s3://shelf/checkpoint")
    assert done.code == 0, done.err
    assert "2 of 2 tensors from" in done.out, done.out
    with pytest.raises(CheckpointError, match=r"^init_from: s3://shelf/gone.pt: no such file"):
        locate_weights("s3://shelf/gone.pt")

    # Rows to predict.
    shelf.pipe("shelf/in.jsonl", b'{"x": [1.0, 0.0, 1.0, 0.0]}\n')
    done = epochal("predict", "last", "--input", "s3://shelf/in.jsonl", "--output", "out.jsonl")
    assert "wrote    1 prediction to out.jsonl" in done.out, done.err

    # What was interrupted is not there, also if it had several parts.
    with pytest.raises(ZeroDivisionError), open_output("s3://shelf/half.tar") as file:
        assert file.write(bytes(60 << 20)) / 0
    shelf.invalidate_cache()
    assert not shelf.exists("shelf/half.tar")
    with (
        pytest.raises(RemoteError, match="s3://nowhere"),
        open_output("s3://nowhere/a.tar") as file,
    ):
        file.write(b"1")
