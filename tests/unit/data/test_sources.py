"""Sources read files by index, in this process and in workers."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import epochal as ep
from epochal.data.file_rows import FileRows
from epochal.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

data = ep.data


def read_both_ways(source: Any) -> list[Any]:
    """The items in order, checked against those of a copy read by index, and of a batch."""
    chain = data.chain(source)
    items = list(chain)
    copy = pickle.loads(pickle.dumps(chain))
    backwards = [copy[index] for index in reversed(range(len(copy)))]
    assert len(backwards) == len(items)
    for one, other in zip(items, reversed(backwards), strict=True):
        np.testing.assert_equal(one, other)
    (batch,) = data.chain(source, data.Skip(0), data.Batch(99, collate="list"))
    np.testing.assert_equal(batch, items)
    return items


def test_lines_are_read_from_all_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo")
    (tmp_path / "b.txt").write_bytes(b"")
    (tmp_path / "c.txt").write_bytes("drei\n\nfünf\n".encode())
    expected = ["one", "two", "drei", "", "fünf"]
    assert read_both_ways(data.Text(str(tmp_path / "*.txt"))) == expected
    paths = [str(tmp_path / "c.txt"), str(tmp_path / "a.txt")]
    assert read_both_ways(data.Text(paths)) == expected[2:] + expected[:2]
    assert read_both_ways(data.Files(str(tmp_path / "[ac].txt"))) == sorted(paths)


def test_json_lines_are_values_and_a_broken_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\n[2]\n {"b": 2} \r\n{"c": 3}')
    assert read_both_ways(data.Jsonl(str(file))) == [{"a": 1}, [2], {"b": 2}, {"c": 3}]
    for broken in ('{"a":', '{"a": 1}x', '{"a": 1} 2'):
        file.write_text(f'{{"a": 1}}\n{broken}\n')
        with pytest.raises(DataError, match=r"a\.jsonl: a line is no JSON.*\n.*begins b'{\"a\":"):
            list(data.chain(data.Jsonl(str(file))))


def test_csv_rows_are_dicts_also_with_quotes_and_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('name,size,note\nx,1,\n"y ""q""",2.5,"two\nlines"\n')
    rows = read_both_ways(data.Csv(str(file)))
    assert rows == [
        {"name": "x", "size": 1, "note": None},
        {"name": 'y "q"', "size": 2.5, "note": "two\nlines"},
    ]
    assert data.chain(data.Csv(str(file), numbers=False))[0]["size"] == "1"
    file.write_text("a;b\n1;2;3\n")
    with pytest.raises(DataError, match="row 1 has 3 values, and the first row 2 names"):
        list(data.chain(data.Csv(str(file), ";")))


def test_csv_files_of_other_programs_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    table = {
        "a byte order mark": ("\ufeffa,b\n1,2\n", [(1, 2)]),
        "a quoted name behind it": ('\ufeff"a","b"\n1,"x\ny"\n', [(1, "x\ny")]),
        "blank lines": ("\n\na,b\r\n\r\n1,2\r\n\n3,4\n\n", [(1, 2), (3, 4)]),
        "quotes inside of values": (
            'a,b\n5" pipe,2\nx, "y\nz,3\n',
            [('5" pipe', 2), ("x", ' "y'), ("z", 3)],
        ),
        "a doubled quote in the middle": ('a,b\nx"",1\n"y\n""",2\n', [('x""', 1), ('y\n"', 2)]),
        "line ends of Unicode": (
            "a,b\nx\u2028y,\x85\nz\x0c,1\n",
            [("x\u2028y", "\x85"), ("z\x0c", 1)],
        ),
        "a name with an underscore": ("a,b\n1_2,1\n", [("1_2", 1)]),
        "a long text": (f"a,b\n{'x' * 200_000},1\n", [("x" * 200_000, 1)]),
        "no last line end": ('a,b\n1,"2\n3"', [(1, "2\n3")]),
    }
    for what, (text, expected) in table.items():
        file.write_bytes(text.encode())
        rows = read_both_ways(data.Csv(str(file)))
        assert [(row["a"], row["b"]) for row in rows] == expected, what


def test_csv_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    for text, message in (
        (b"a,b,a\n1,2,3\n", "several columns have the name 'a'"),
        (b"a,b\r1,2\r", r"row 0 is no CSV: new-line character.*\n.*begins 'a,b"),
    ):
        file.write_bytes(text)
        with pytest.raises(DataError, match=message):
            len(data.chain(data.Csv(str(file))))


def test_json_lines_skip_blank_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    for text, expected in (
        ('\ufeff{"a": 1}\n2\n', [{"a": 1}, 2]),
        (" \n1\r\n\r\n \t\n2\n\n", [1, 2]),
        ("", []),
        ("\n\n", []),
    ):
        file.write_bytes(text.encode())
        assert list(data.chain(data.Jsonl(str(file)))) == expected
        assert len(data.chain(data.Jsonl(str(file)))) == len(expected)
    file.write_bytes("\ufeffone\n\n".encode())
    assert list(data.chain(data.Text(str(file)))) == ["one", ""]


def test_files_that_are_missing_or_broken_are_named(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("datasets")
    bad = tmp_path / "bad"
    bad.write_text("hello")
    np.save(tmp_path / "single.npy", np.float32(3))
    save_file({"x": np.zeros((3, 2)), "y": np.zeros(2)}, tmp_path / "a.safetensors")
    save_file({"x": np.zeros((3, 2)), "y": np.array(2)}, tmp_path / "b.safetensors")
    gone = str(tmp_path / "gone")
    for source, message in (
        (data.Arrays(x=gone), "no file or folder .*gone'\n.*current folder"),
        (data.Arrays(x=str(bad)), "bad cannot be read as a NumPy file"),
        (data.Arrays(x=str(tmp_path / "single.npy")), "a row for each sample"),
        (data.Safetensors(gone), "no file or folder"),
        (data.Safetensors(str(bad)), "bad cannot be read as a safetensors file"),
        (data.Safetensors(str(tmp_path / "a.safetensors")), "different numbers of rows"),
        (data.Safetensors(str(tmp_path / "b.safetensors")), "different numbers of rows"),
        (data.HuggingFace(gone), "no file or folder"),
        (data.HuggingFace(str(tmp_path)), "cannot be read as what save_to_disk wrote"),
        (data.Parquet(str(bad)), "bad cannot be read as a Parquet file"),
        (data.Jsonl(str(tmp_path)), "is a folder\n  name its files, such as '.*/\\*'"),
    ):
        with pytest.raises(DataError, match=message):
            len(data.chain(source))


def test_hidden_files_are_no_images_and_a_broken_one_is_named(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in (".ipynb_checkpoints", "cat", "dog"):
        (tmp_path / name).mkdir()
        image.new("RGB", (4, 4)).save(tmp_path / name / "a.png")
    (tmp_path / "cat" / "._a.png").write_bytes(b"of macOS")
    assert [one["label"] for one in data.chain(data.ImageFolder(str(tmp_path)))] == [0, 1]
    whole = (tmp_path / "dog" / "a.png").read_bytes()
    (tmp_path / "dog" / "a.png").write_bytes(whole[:45])
    with pytest.raises(DataError, match=r"dog/a\.png cannot be read as an image"):
        list(data.chain(data.ImageFolder(str(tmp_path))))
    image.fromarray(np.full((4, 4), 4000, np.uint16)).save(tmp_path / "dog" / "a.png")
    with pytest.raises(DataError, match=r"dog/a\.png.*\n  its pixels have more than 8 bits"):
        list(data.chain(data.ImageFolder(str(tmp_path))))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no images in the folder '.*empty'\n.*\.jpg"):
        len(data.chain(data.ImageFolder(str(tmp_path / "empty"))))


def test_a_broken_tar_or_file_in_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"

    def read() -> list[Any]:
        return list(data.chain(data.Files(str(path)), data.WebDataset()))

    def write_tar(files: dict[str, bytes]) -> None:
        with tarfile.open(path, "w") as tar:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))

    write_tar({"._1.cls": b"of macOS", "1.cls": b"1", "2.cls": b"2"})
    assert [one["cls"] for one in read()] == [1, 2]
    for name, content in (("3.cls", b"cat"), ("3.json", b"{"), ("3.txt", b"\xff"), ("3.png", b"x")):
        write_tar({"1.cls": b"1", name: content})
        with pytest.raises(
            DataError, match=rf"a\.tar: {name} cannot be decoded: .*\n.*decode: false"
        ):
            read()
    write_tar({"1.cls": b"1", "2.bin": b"x" * 9000})
    whole = path.read_bytes()
    for content in (whole[:3000], b"hello" * 500, b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"a\.tar cannot be read as a tar file: .*\n.*damaged"):
            read()


def test_parquet_rows_are_dicts(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for number in range(2):
        table = arrow.table({"x": [number * 5 + i for i in range(5)], "y": list("abcde")})
        parquet.write_table(table, tmp_path / f"{number}.parquet", row_group_size=2)
    rows = read_both_ways(data.Parquet(str(tmp_path / "*.parquet"), groups=1))
    assert [row["x"] for row in rows] == list(range(10))
    assert rows[7] == {"x": 7, "y": "c"}
    assert data.chain(data.Parquet(str(tmp_path / "0.parquet"), columns=["y"]))[0] == {"y": "a"}
    with pytest.raises(DataError, match=r"0\.parquet has no column 'yy'\n  did you mean 'y'"):
        len(data.chain(data.Parquet(str(tmp_path / "0.parquet"), columns=["yy"])))


def test_images_have_the_labels_of_their_folders(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for folder, color in (("cat", (255, 0, 0)), ("dog", (0, 255, 0))):
        (tmp_path / folder).mkdir()
        image.new("RGB", (4, 3), color).save(tmp_path / folder / "1.png")
    source = data.ImageFolder(str(tmp_path))
    first, second = read_both_ways(source)
    assert (first["label"], second["label"]) == (0, 1)
    assert first["image"].shape == (3, 3, 4)
    assert second["image"][:, 0, 0].tolist() == [0, 255, 0]
    small = data.chain(data.ImageFolder(str(tmp_path), size=(2, 2), mode="L"))[0]["image"]
    assert small.shape == (1, 2, 2)
    with pytest.raises(DataError, match="no folder"):
        len(data.chain(data.ImageFolder(str(tmp_path / "none"))))


def test_rows_of_arrays_are_read_from_files(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    x, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 2])
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    save_file({"x": x, "y": y}, tmp_path / "both.safetensors")
    for source in (
        data.Arrays(x=str(tmp_path / "x.npy"), y=str(tmp_path / "y.npy")),
        data.Safetensors(str(tmp_path / "both.safetensors")),
    ):
        rows = read_both_ways(source)
        assert [row["y"] for row in rows] == [0, 1, 2]
        assert rows[2]["x"].tolist() == [4.0, 5.0]
    np.save(tmp_path / "y.npy", y[:2])
    with pytest.raises(DataError, match=r"different lengths: {'x': 3, 'y': 2}"):
        len(data.chain(data.Arrays(x=str(tmp_path / "x.npy"), y=str(tmp_path / "y.npy"))))


def write_shard(path: Path, numbers: range) -> None:
    with tarfile.open(path, "w") as tar:
        for number in numbers:
            files = {"cls": str(number % 2), "json": json.dumps({"id": number}), "bin": "\0"}
            for name, text in files.items():
                member = tarfile.TarInfo(f"set.v1/{number:04}.{name}")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))


def test_samples_of_tar_files_are_read_by_any_worker_from_any_position(tmp_path: Path) -> None:
    for shard in range(4):
        write_shard(tmp_path / f"{shard}.tar", range(shard * 3, shard * 3 + 3))
    files = data.Files(str(tmp_path / "*.tar"))
    chain = data.chain(files, data.SplitByWorker(2), data.WebDataset())
    samples = list(chain)
    assert sorted(sample["json"]["id"] for sample in samples) == list(range(12))
    assert samples[0] == {
        "__key__": "set.v1/0000", "cls": 0, "json": {"id": 0}, "bin": b"\0"
    }  # fmt: skip
    assert list(chain.items(start=5)) == samples[5:]
    raw = next(iter(data.chain(files, data.WebDataset(decode=False))))
    assert raw["cls"] == b"0"


def test_a_dataset_of_hugging_face_is_read_from_disk(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    both = datasets.DatasetDict(train=datasets.Dataset.from_dict({"x": [1, 2, 3]}))
    both.save_to_disk(tmp_path / "set")
    rows = read_both_ways(data.HuggingFace(str(tmp_path / "set"), "train"))
    assert rows == [{"x": 1}, {"x": 2}, {"x": 3}]
    with pytest.raises(DataError, match="has the splits train"):
        len(data.chain(data.HuggingFace(str(tmp_path / "set"))))


def test_a_pattern_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file matches .*\*\.jsonl"):
        len(data.chain(data.Jsonl(str(tmp_path / "*.jsonl"))))


def test_urls_are_copied_once_and_again_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("EPOCHAL_DATA_CACHE", str(tmp_path / "cache"))
    memory = fsspec.filesystem("memory")
    for name in ("a", "b"):
        memory.pipe(f"/shop/{name}.jsonl", json.dumps({"from": name}).encode())
    chain = data.chain(data.Jsonl("memory://shop/*.jsonl"))
    assert list(chain) == [{"from": "a"}, {"from": "b"}]
    assert len(list((tmp_path / "cache").iterdir())) == 2
    list(data.chain(data.Jsonl("memory://shop/*.jsonl")))
    assert len(list((tmp_path / "cache").iterdir())) == 2
    with pytest.raises(DataError, match="nowhere://"):
        len(data.chain(data.Text("nowhere://x/y.txt")))


def test_folders_behind_urls_are_copied_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec, image = pytest.importorskip("fsspec"), pytest.importorskip("PIL.Image")
    monkeypatch.setenv("EPOCHAL_DATA_CACHE", str(tmp_path / "cache"))
    for folder in ("cat", "dog"):
        (tmp_path / "pets" / folder).mkdir(parents=True)
        image.new("L", (2, 2)).save(tmp_path / "pets" / folder / "1.png")
    fsspec.filesystem("memory").put(str(tmp_path / "pets"), "/zoo/pets", recursive=True)
    assert [one["label"] for one in read_both_ways(data.ImageFolder("memory://zoo/pets"))] == [0, 1]
    assert len(list((tmp_path / "cache").iterdir())) == 1
    with pytest.raises(DataError, match="memory://zoo/gone: no such file or folder"):
        len(data.chain(data.ImageFolder("memory://zoo/gone")))


def test_empty_lines_of_json_lines_are_skipped(tmp_path: Path) -> None:
    for text in ("1\n2\n", "\n\n1\n\n\n2", "1\n2\n\n\n", "\n1\n2"):
        (tmp_path / "a.jsonl").write_text(text)
        chain = data.chain(data.Jsonl(str(tmp_path / "a.jsonl")))
        assert list(chain) == [1, 2], text
        assert [chain[1], chain[0]] == [2, 1], text
        assert list(chain.then(data.Batch(2, collate="list"))) == [[1, 2]], text


def test_lines_of_a_text_file_are_rows_to_predict(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("one\ntwo\n")
    rows = FileRows(path=str(tmp_path / "rows.txt"))
    assert [rows[0], rows[1]] == [{"text": "one"}, {"text": "two"}]


def test_arrays_to_predict_have_the_same_number_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, x=np.arange(3), y=np.zeros((3, 2)))
    assert len(FileRows(path=str(path))) == 3
    for other in (np.zeros(2), np.float32(1)):
        np.savez(path, x=np.arange(3), y=other)
        with pytest.raises(DataError, match=r"rows.npz: .* different numbers of rows: 'x' 3, 'y' "):
            FileRows(path=str(path))
