"""Data on a real S3 server; needs s3fs and moto's server, which no extra installs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import epochal as ep

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")


def test_data_are_read_from_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    server = moto_server.ThreadedMotoServer(port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "word",
            "AWS_DEFAULT_REGION": "us-east-1",
            "EPOCHAL_DATA_CACHE": str(tmp_path / "cache"),
        }.items():
            monkeypatch.setenv(name, value)
        store = s3fs.S3FileSystem()
        store.mkdir("shelf")
        for part in range(2):
            store.pipe(f"shelf/part-{part}.jsonl", f'{{"id": {part}}}\n'.encode())
        chain = ep.data.chain(ep.data.Jsonl("s3://shelf/part-*.jsonl"), ep.data.Shuffle())
        assert sorted(row["id"] for row in chain) == [0, 1]
        assert len(list((tmp_path / "cache").iterdir())) == 2
        store.pipe("shelf/part-0.jsonl", b'{"id": 7}\n{"id": 8}\n')
        store.invalidate_cache()
        again = ep.data.chain(ep.data.Jsonl("s3://shelf/part-*.jsonl"))
        assert [row["id"] for row in again] == [7, 8, 1]
    finally:
        server.stop()
