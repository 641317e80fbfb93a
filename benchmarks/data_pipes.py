"""Samples per second of chains of pipes beside other ways to load the same data.

    python benchmarks/data_pipes.py [--workers 2] [--repeats 5] [--json FILE]

Two pipelines, each written as a user of that library would: JSON lines of text that are parsed,
encoded and padded, and an image folder that is decoded, resized and stacked. Contenders that are
not installed are left out. All must give the same samples, each once in a pass; the pass that
proves it also warms up. Then all contenders take turns, so that a busy minute hurts all of them;
the best run of each counts. ``--workers 0`` also measures the time of the processor.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

import epochal as ep

BATCH = 32
SIDE = 64
Open = Callable[[], Iterable[Any]]


def encode(row: dict[str, Any]) -> dict[str, Any]:
    """Tokens of a text: the sum of the letters of each word."""
    tokens = [sum(map(ord, word)) % 5000 for word in row["text"].split()]
    return {"tokens": np.asarray(tokens), "label": row["label"]}


def pad(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch of texts."""
    rows = [torch.as_tensor(sample["tokens"]) for sample in samples]
    labels = torch.tensor([sample["label"] for sample in samples])
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return {"tokens": tokens, "label": labels}


def read_picture(path: str) -> np.ndarray[Any, Any]:
    """A picture of one size, channels first."""
    from PIL import Image

    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB").resize((SIDE, SIDE)))
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


class Texts(Dataset[Any]):
    """A hand-written dataset: all lines in memory."""

    def __init__(self, file: Path) -> None:
        self.lines = file.read_text().splitlines()

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return encode(json.loads(self.lines[index]))


class Pictures(Dataset[Any]):
    """A hand-written dataset of an image folder."""

    def __init__(self, folder: Path) -> None:
        classes = sorted(one for one in folder.iterdir() if one.is_dir())
        self.samples = [(str(f), n) for n, one in enumerate(classes) for f in sorted(one.iterdir())]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        path, label = self.samples[index]
        return {"image": read_picture(path), "label": label}


def write_texts(folder: Path, count: int) -> Path:
    """A file of JSON lines with texts of 5 to 200 words."""
    draw, file = random.Random(0), folder / "texts.jsonl"
    words = ["".join(draw.choices("abcdefghij", k=draw.randint(2, 9))) for _ in range(500)]
    with file.open("w") as out:
        for number in range(count):
            text = " ".join(draw.choices(words, k=draw.randint(5, 200)))
            out.write(json.dumps({"text": text, "label": number % 4}) + "\n")
    return file


def write_pictures(folder: Path, count: int) -> Path:
    """JPEG files of 160 by 120 pixels in four folders."""
    from PIL import Image

    draw, root = np.random.default_rng(0), folder / "pictures"
    for number in range(count):
        place = root / f"class{number % 4}"
        place.mkdir(parents=True, exist_ok=True)
        small = draw.integers(0, 255, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(small).resize((160, 120)).save(place / f"{number}.jpg")
    return root


def text_contenders(file: Path, workers: int) -> dict[str, Open]:
    """Ways to load the texts, shuffled."""
    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    chain = ep.data.chain(ep.data.Jsonl(str(file)), encode, ep.data.Shuffle())
    ours = chain.loader(
        batch_size=BATCH, collate=pad, workers=workers, persistent_workers=workers > 0
    )
    plain: Any = DataLoader(Texts(file), BATCH, shuffle=True, collate_fn=pad, **options)
    found: dict[str, Open] = {"epochal": lambda: ours, "DataLoader": lambda: plain}
    kept = ep.data.Cache(str(file.parent / "encoded"))
    encoded = ep.data.chain(ep.data.Jsonl(str(file)), encode, kept, ep.data.Shuffle()).loader(
        batch_size=BATCH, collate=pad, workers=workers, persistent_workers=workers > 0
    )
    found["epochal (encoded before)"] = lambda: encoded
    try:
        from torch.utils.data import RandomSampler
        from torchdata.nodes import Batcher, Loader, ParallelMapper, SamplerWrapper

        data = Texts(file)
        nodes = ParallelMapper(
            SamplerWrapper(RandomSampler(data)), data.__getitem__, workers, method="process"
        )
        node_loader = Loader(ParallelMapper(Batcher(nodes, BATCH, drop_last=False), pad, 0))
        found["torchdata nodes"] = lambda: node_loader
    except ImportError:
        pass
    try:
        from datasets import load_dataset

        rows = load_dataset("json", data_files=str(file), split="train").map(encode, num_proc=None)
        hugging: Any = DataLoader(
            rows.with_format("numpy"), BATCH, shuffle=True, collate_fn=pad, **options
        )
        found["Hugging Face datasets (encoded before)"] = lambda: hugging
    except ImportError:
        pass
    return found


def picture_contenders(folder: Path, workers: int, scratch: Path) -> dict[str, Open]:
    """Ways to load the pictures, shuffled."""
    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    source = ep.data.ImageFolder(str(folder), size=(SIDE, SIDE))
    chain = ep.data.chain(source, drop_path, ep.data.Shuffle())
    ours = chain.loader(batch_size=BATCH, workers=workers, persistent_workers=workers > 0)
    plain: Any = DataLoader(Pictures(folder), BATCH, shuffle=True, **options)
    found: dict[str, Open] = {"epochal": lambda: ours, "DataLoader": lambda: plain}
    try:
        import webdataset

        with webdataset.ShardWriter(str(scratch / "shard-%02d.tar"), maxcount=100) as sink:
            for path, label in Pictures(folder).samples:
                name = Path(path).stem
                sink.write({"__key__": name, "jpg": Path(path).read_bytes(), "cls": label})
        shards = sorted(str(one) for one in scratch.glob("shard-*.tar"))
        web = webdataset.WebDataset(shards, shardshuffle=100).shuffle(100).map(decode_shard)
        stacked = web.batched(BATCH, collation_fn=default_collate)
        loader: Any = DataLoader(stacked, batch_size=None, **options)
        found["WebDataset"] = lambda: loader
        tars = ep.data.chain(
            ep.data.Files(shards),
            ep.data.Shuffle(),
            ep.data.SplitByWorker(max(workers, 1)),
            ep.data.WebDataset(decode=False),
            ep.data.ShuffleBuffer(100),
            decode_shard,
        ).loader(batch_size=BATCH, workers=workers, persistent_workers=workers > 0)
        found["epochal, the same shards"] = lambda: tars
    except ImportError:
        pass
    return found


def drop_path(sample: dict[str, Any]) -> dict[str, Any]:
    """Only what a model needs."""
    return {"image": sample["image"], "label": sample["label"]}


def decode_shard(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample of a tar file."""
    import io

    return {"image": read_picture(io.BytesIO(sample["jpg"])), "label": int(sample["cls"])}  # type: ignore[arg-type]


def require_equal_samples(contenders: dict[str, Open], count: int) -> None:
    """Read one pass of each contender, and compare the samples without their order."""
    expected: list[tuple[int, int]] | None = None
    for name, open_loader in contenders.items():
        found: list[tuple[int, int]] = []
        for batch in open_loader():
            values = batch["tokens"] if "tokens" in batch else batch["image"]
            sums = torch.as_tensor(values).flatten(1).sum(1, dtype=torch.int64).tolist()
            found += zip(sums, torch.as_tensor(batch["label"]).tolist(), strict=True)
        found.sort()
        assert len(found) == count, (name, len(found))
        assert expected in (None, found), f"{name} gives other samples"
        expected = found


def measure(contenders: dict[str, Open], count: int, repeats: int) -> dict[str, dict[str, float]]:
    """The best samples per second of each contender, by the clock and by this process."""
    require_equal_samples(contenders, count)
    best = {name: {"samples/s": 0.0, "samples/s of CPU": 0.0} for name in contenders}
    for _ in range(repeats):
        for name, open_loader in contenders.items():
            begun, used = perf_counter(), process_time()
            for _batch in open_loader():
                pass
            rates = count / (perf_counter() - begun), count / (process_time() - used)
            for key, rate in zip(best[name], rates, strict=True):
                best[name][key] = max(best[name][key], rate)
    return best


def main() -> None:
    """Measure both pipelines and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--pictures", type=int, default=2_000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = write_texts(folder, args.texts)
        pictures = write_pictures(folder, args.pictures)
        tables = {
            "JSON lines": measure(text_contenders(texts, args.workers), args.texts, args.repeats),
            "image folder": measure(
                picture_contenders(pictures, args.workers, folder), args.pictures, args.repeats
            ),
        }
    for title, found in tables.items():
        print(f"{title}, {args.workers} workers")
        for contender, rates in sorted(found.items(), key=lambda one: -one[1]["samples/s"]):
            by_process = f" {rates['samples/s of CPU']:10.0f} of CPU" if not args.workers else ""
            print(f"  {contender:40} {rates['samples/s']:10.0f} samples/s{by_process}")
    if args.json is not None:
        args.json.write_text(json.dumps(tables, indent=2) + "\n")


if __name__ == "__main__":
    main()
