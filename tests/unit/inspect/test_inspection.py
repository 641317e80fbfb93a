"""What an inspection of data finds, and the page that shows it."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import epochal as ep
from epochal.errors import DataError
from epochal.inspect.sample_page import build_page, find_picture, list_warnings, show_sample
from epochal.inspect.split_report import inspect_split, split_samples, time_pipes


def double(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


SAMPLES = [
    {"x": np.full(3, index / 4), "label": index % 3, "text": f"<b>{index}</b>"}
    for index in range(9)
]


def inspect(samples: list[Any], name: str = "train", **options: Any) -> Any:
    loader = DataLoader(samples, batch_size=4)  # type: ignore[arg-type]
    return inspect_split(name, loader, **{"limit": 100, "examples": 2, **options})


def test_fields_and_labels_are_counted() -> None:
    report = inspect(SAMPLES)
    assert (report.num_samples, report.num_batches, report.num_read) == (9, 3, 9)
    assert report.fields["x"].to_json() == {
        "dtype": "float64", "missing": 0, "shapes": {"3": 9}, "min": 0, "max": 2, "mean": 1
    }  # fmt: skip
    assert report.fields["text"].dtype == "text"
    assert report.labels["label"] == {"0": 3, "1": 3, "2": 3}
    assert len(report.examples) == 2
    assert inspect(SAMPLES, limit=5).num_read == 5
    texts = [{"kind": "ab"[index % 2], "text": "long " * (9 + index % 2)} for index in range(9)]
    assert list(inspect(texts).labels) == ["kind"]


def test_missing_repeated_and_shared_samples_are_warned_of() -> None:
    broken = {"x": np.array([1.0, np.nan, np.nan]), "label": 0, "text": "none"}
    train = inspect([*SAMPLES, SAMPLES[0], broken])
    val = inspect([SAMPLES[1], SAMPLES[2]], "val", spec={"x": {"shape": (None, 4)}})
    assert list_warnings([train, val]) == [
        "2 samples both in train and in val",
        "train: 1 sample repeated",
        "train.x: 2 missing values",
        "val: 'x' has the shape (2, 3), expected (any, 4)",
    ]


def test_the_same_image_in_two_files_is_a_repeated_sample() -> None:
    samples = [{"image": np.zeros((1, 9, 9)), "path": f"{number}.png"} for number in range(3)]
    assert inspect(samples).num_duplicates == 2


def test_samples_that_make_no_batch_are_read_one_by_one() -> None:
    rows = [{"city": None, "age": 1}, {"city": "Ulm", "age": 2}, {"city": "Ulm", "age": 2}]
    chain = ep.data.chain(rows).loader(batch_size=2)
    for loader in (chain, DataLoader(rows, batch_size=2)):  # type: ignore[arg-type]
        report = inspect_split("train", loader, limit=9, examples=9)
        assert (report.num_read, report.num_duplicates) == (3, 1)
        assert report.fields["city"].num_missing == 1
        (problem,) = report.problems
        assert problem.startswith("its batches cannot be made: default_collate: ")
    with pytest.raises(ZeroDivisionError):  # a sample that cannot be read stays an error
        inspect_split("train", ep.data.chain([0], invert).loader(), limit=9, examples=9)


class DeadWorker(DataLoader[Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")


def test_samples_that_cannot_be_read_are_listed_and_the_others_shown() -> None:
    class Damaged:
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> dict[str, int]:
            if index % 4 == 3:
                raise OSError(f"image {index} is truncated")
            return {"x": index}

    few = ep.data.chain(Damaged(), ep.data.Take(8)).loader(batch_size=2)
    for loader in (DataLoader(Damaged(), batch_size=2), few):  # type: ignore[arg-type]
        report = inspect_split("train", loader, limit=8, examples=2)
        assert report.num_read in (6, 8)
        assert report.problems[0] == "its batches cannot be made: image 3 is truncated"
        assert report.problems[1] == "sample 3 cannot be read: image 3 is truncated"
    only = ep.data.chain(Damaged(), ep.data.Slice(3, 4)).loader(batch_size=2)
    with pytest.raises(OSError, match="image 3"):
        inspect_split("train", only, limit=8, examples=2)


def test_a_sample_that_kills_a_worker_is_not_read_in_this_process() -> None:
    with pytest.raises(DataError, match="train_loader: a worker process of the loader died"):
        inspect_split("train", DeadWorker(SAMPLES, num_workers=1), limit=9, examples=9)  # type: ignore[arg-type]


def invert(number: int) -> float:
    return 1 / number


def test_samples_are_compared_before_they_are_padded() -> None:
    tokens = [np.arange(length) for length in (2, 5, 2, 3)]
    samples = [{"tokens": one} for one in tokens]
    chain = ep.data.chain(samples).loader(batch_size=2, collate="pad")
    torch_loader = DataLoader(samples, batch_size=2, collate_fn=ep.data.PadCollate())  # type: ignore[arg-type]
    spec = {"tokens": {"shape": (None, 7)}}
    for loader in (chain, torch_loader):
        report = inspect_split("train", loader, limit=9, examples=9, spec=spec)
        assert report.num_duplicates == 1
        assert report.fields["tokens"].shapes == {"2": 2, "5": 1, "3": 1}
        assert report.problems == ["'tokens' has the shape (2, 5), expected (any, 7)"]


def test_batches_of_every_form_become_samples() -> None:
    table: list[tuple[Any, list[dict[str, Any]]]] = [
        ({"a": torch.tensor([1, 2]), "size": 3}, [{"a": 1}, {"a": 2}]),
        ([torch.tensor([1, 2]), ["x", "y"]], [{"0": 1, "1": "x"}, {"0": 2, "1": "y"}]),
        ([{"a": 1}, {"a": 2}], [{"a": 1}, {"a": 2}]),
        (torch.tensor([5]), [{"0": 5}]),
    ]
    for batch, expected in table:
        assert list(split_samples(batch)) == expected, batch


def test_pictures_are_found_in_arrays_and_sounds() -> None:
    table: list[tuple[Any, tuple[int, ...] | None]] = [
        (np.zeros((3, 10, 12), np.uint8), (10, 12, 3)),
        (np.zeros((10, 12, 1)), (10, 12, 1)),
        (np.zeros((28, 28)), (28, 28, 1)),
        (np.zeros(4000, np.float32), (129, 30, 1)),
        (np.zeros((2, 4000), np.float32), (129, 30, 1)),
        (np.zeros((1, 4000), np.int16), (129, 30, 1)),
        (np.zeros(4000, np.int64), None),
        (np.zeros((2, 3)), None),
        (np.zeros(5), None),
        ("text", None),
    ]
    for value, shape in table:
        picture = find_picture(value)
        assert (None if picture is None else picture.shape) == shape, value


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        loaded = [value for name, value in attrs if name in ("src", "href")]
        assert all(str(value).startswith("data:image/png") for value in loaded)


def test_the_page_needs_no_network_and_shows_values_as_text() -> None:
    pictures = [
        {"image": np.zeros((3, 9, 9), np.uint8), "mask": np.eye(9, dtype=int), "label": 1,
         "boxes": np.array([[1, 2, 5, 6]])}
    ]  # fmt: skip
    page = build_page("<shop>", [inspect(SAMPLES), inspect(pictures, "val")])
    tags = Tags(page).seen
    assert "script" not in tags
    assert "b" not in tags
    assert (tags.count("svg"), tags.count("image"), tags.count("rect")) == (1, 2, 1)
    assert "&lt;b&gt;0&lt;/b&gt;" in page
    assert "Balance of label" in page
    assert "<pre>1 thing</pre>" in show_sample(pictures[0], lambda one: f"{one['label']} thing")
    assert "<svg" in show_sample(pictures[0], lambda one: one["image"])


def test_targets_of_detection_are_fields_and_layers_of_the_picture() -> None:
    target = {
        "boxes": torch.tensor([[1.0, 2, 5, 6], [0, 0, 3, 3]]),
        "labels": torch.tensor([2, 1]),
        "masks": torch.eye(9).repeat(2, 1, 1),
    }
    samples = [(torch.zeros(3, 9, 9), target), (torch.ones(3, 9, 9), target)]
    as_torchvision = DataLoader(samples, batch_size=2, collate_fn=lambda few: tuple(zip(*few)))  # type: ignore[arg-type] # noqa: B905 - as its tutorials write it
    for loader in (as_torchvision, ep.data.chain(samples).loader(batch_size=2, collate="list")):
        report = inspect_split("train", loader, limit=9, examples=9)
        assert list(report.fields) == ["0", "1.boxes", "1.labels", "1.masks"]
        assert (report.num_read, report.num_duplicates) == (2, 0)
        shown = show_sample(report.examples[0])
        assert (shown.count("<image"), shown.count("<rect")) == (2, 2)
        assert "1.labels: 2 1" in shown
        assert "boxes:" not in shown
    odd = {"image": np.zeros((9, 9)), "boxes": np.zeros((2, 5)), "mask": np.zeros((3, 4))}
    assert show_sample(odd).count("<image") == 1  # neither fits the picture
    assert "boxes: 2x5" in show_sample({"boxes": odd["boxes"]})


def test_many_shapes_are_a_range_of_each_axis() -> None:
    table: list[tuple[list[tuple[int, ...]], str]] = [
        ([(3, 4), (2, 4)], "3x4, 2x4"),
        ([(length,) for length in (6, 3, 11, 7)], "3 to 11"),
        ([(3, size, 8) for size in (6, 3, 11, 7)], "3x(3 to 11)x8"),
        ([(), (1,), (2,), (2,), (3,)], "2, single, 1, ..."),
    ]
    for shapes, expected in table:
        loader = ep.data.chain([{"x": np.zeros(one)} for one in shapes]).loader(collate="list")
        (field,) = inspect_split("train", loader, limit=9, examples=0).fields.values()
        assert field.describe_shapes() == expected


def test_columns_of_numbers_are_aligned_as_a_whole() -> None:
    numbers = inspect([{"x": 1e-7}, {"x": 2.0}])
    assert "<td class=n>1e-07<td class=n>2<td class=n>1" in build_page("shop", [numbers])


def test_a_field_is_of_the_type_of_its_first_value_and_texts_have_lengths() -> None:
    loader = ep.data.chain([{"city": None}, {"city": "Ulm"}, {"city": "Basel"}]).loader(
        collate="list"
    )
    report = inspect_split("train", loader, limit=9, examples=9)
    assert report.fields["city"].to_json() == {
        "dtype": "text", "missing": 1, "shapes": {"single": 2},
        "min_length": 3, "max_length": 5, "mean_length": 4,
    }  # fmt: skip
    page = build_page("towns", [report])
    lengths = "<td class=n>3 characters<td class=n>5 characters<td class=n>4 characters"
    assert f"<td>text<td>single{lengths}<td class=n>1" in page
    assert "<tr><td>missing<tr><td>Ulm<tr><td>Basel" in page  # short values are rows of a table


def test_the_time_of_each_pipe_is_measured() -> None:
    chain = ep.data.chain(SAMPLES, double, ep.data.Shuffle())
    assert list(time_pipes(chain)) == ["1 Items", "2 Map", "3 Shuffle"]
    report = inspect_split("val", chain.loader(batch_size=2), limit=4, examples=0)
    assert list(report.pipe_seconds) == ["1 Items", "2 Map", "3 Shuffle"]
    assert report.num_samples == 9


def test_the_time_of_a_pipe_excludes_the_pipes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("epochal.inspect.split_report.perf_counter", lambda: now[0])

    def take(seconds: float, result: Any) -> Any:
        now[0] += seconds
        return result

    class Source(list[int]):
        def __getitem__(self, index: Any) -> Any:
            return take(10, super().__getitem__(index))

    chain = ep.data.chain(
        Source(range(4)),
        ep.data.FlatMap(lambda item: take(8, [item] * 16)),
        ep.data.Filter(lambda _: take(1, True)),
        ep.data.Materialise(),
        lambda item: take(2, item),
    )
    chain.prepare()
    assert time_pipes(chain) == {
        "1 Items": 10, "2 FlatMap": 0.5, "3 Filter": 1, "4 Materialise": 0, "5 Map": 2
    }  # fmt: skip
