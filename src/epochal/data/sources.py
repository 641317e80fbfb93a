"""Pipes that a chain starts with: items in memory, lines, tables, images and arrays in files."""

from __future__ import annotations

import csv
import io
import json
import mmap
from abc import ABC, abstractmethod
from bisect import bisect_right
from codecs import BOM_UTF8
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from json.scanner import make_scanner
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast, final

import numpy as np
from typing_extensions import override

from epochal.config.bounds import AtLeast
from epochal.config.source_file import display_name
from epochal.data.files import find_files, local_path
from epochal.data.pipe import Item, Pass, Pipe
from epochal.data.transforms import seeded_stream
from epochal.durable.remote import is_url
from epochal.errors import DataError, suggest

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Offsets = np.ndarray[Any, np.dtype[np.int64]]
_scan = make_scanner(cast("Any", json.JSONDecoder()))  # typed as if it took another scanner
_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


class _Indexed(Pipe, ABC):
    """A source whose items are read by index."""

    is_source = True
    gives = "indexed"

    @override
    def count(self, one_pass: Pass) -> int:
        return len(self)

    @abstractmethod
    def __len__(self) -> int:
        """How many items there are."""


@final
class Items(_Indexed):
    """The items of a list, or of any object with ``__getitem__`` and ``__len__``.

    Args:
        items: The items.
    """

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    @override
    def __len__(self) -> int:
        return len(self.items)

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        return self.items[index]


@final
class Iterated(Pipe):
    """The items of an object with ``__iter__`` alone, which starts again in each epoch.

    Args:
        items: The object.
    """

    is_source = True
    gives = "stream"

    def __init__(self, items: Any) -> None:  # noqa: ANN401 - anything that can be iterated
        if isinstance(items, Iterator):
            raise DataError(
                f"data: {type(items).__name__} can be read only once\n"
                "  give an object whose __iter__ starts again each time"
            )
        self.items = items

    @override
    def count(self, one_pass: Pass) -> int | None:
        return len(self.items) if hasattr(self.items, "__len__") else None

    @override
    def iterate(self, one_pass: Pass, start: int = 0) -> Iterator[Item]:
        return islice(seeded_stream(self, lambda _: iter(self.items), one_pass), start, None)


@final
class Files(_Indexed):
    """The paths of files, sorted by name.

    Args:
        path: A path, a pattern such as data/*.tar, a URL, or a list of them.
    """

    def __init__(self, path: str | list[str]) -> None:
        self.path = path

    @override
    def prepare(self) -> None:
        self.files = find_files(self.path)

    @override
    def __len__(self) -> int:
        return len(self.files)

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        return self.files[index]


class _InFiles(_Indexed, ABC):
    """Items in several files, numbered across all of them."""

    path: str | list[str]

    @override
    def prepare(self) -> None:
        self.files = [str(local_path(path)) for path in find_files(self.path)]
        counts = [self.index_file(number, file) for number, file in enumerate(self.files)]
        self._ends = list(accumulate(counts))

    def show(self, number: int) -> str:
        """The name of a file for messages."""
        return display_name(Path(self.files[number]))

    @abstractmethod
    def index_file(self, number: int, file: str) -> int:
        """Prepare to read a file; returns the number of its items."""

    @abstractmethod
    def read_item(self, number: int, at: int) -> Item:
        """An item of a file."""

    @override
    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        if not 0 <= index < len(self):
            raise IndexError(f"{index} is not below {len(self)}")
        number = bisect_right(self._ends, index)
        return self.read_item(number, index - (self._ends[number - 1] if number else 0))


class _Lines(_InFiles, ABC):
    """Lines of files, found by their offsets and read from mapped memory."""

    def __init__(self, path: str | list[str]) -> None:
        self.path = path
        self._starts: list[Offsets] = []
        self._maps: dict[int, mmap.mmap | bytes] = {}

    @override
    def index_file(self, number: int, file: str) -> int:
        whole = self._map(number)
        data = np.frombuffer(whole, dtype=np.uint8)
        ends = self.find_ends(data)
        if len(data) and (not len(ends) or ends[-1] != len(data)):
            ends = np.append(ends, len(data))
        first = len(BOM_UTF8) if whole[: len(BOM_UTF8)] == BOM_UTF8 else 0
        starts = np.concatenate(([first], ends[ends > first])).astype(np.int64)
        self._starts = [*self._starts[:number], self._join_blank(starts, data)]
        return len(self._starts[number]) - 1

    @abstractmethod
    def find_ends(self, data: Bytes) -> Offsets:
        """Where lines end: the offsets behind their last bytes."""

    blank: ClassVar[bytes] = b""
    """A line of these bytes alone is no item."""

    def _join_blank(self, starts: Offsets, data: Bytes) -> Offsets:
        """The offsets without blank lines, each of which becomes part of the line before it."""
        if not self.blank or len(starts) < 2:
            return starts
        is_blank = np.isin(data[starts[:-1]], np.frombuffer(self.blank, dtype=np.uint8))
        for at in np.flatnonzero(is_blank):
            is_blank[at] = not data[starts[at] : starts[at + 1]].tobytes().strip(self.blank)
        text = np.flatnonzero(~is_blank)  # those before the first one are part of it
        if not len(text):
            return starts[:1]
        return np.concatenate((starts[:1], starts[text[1:]], starts[-1:]))

    @override
    def read_item(self, number: int, at: int) -> Item:
        first, end = self._starts[number][at : at + 2].tolist()
        try:
            return self.parse(self._map(number)[first:end].decode())
        except ValueError as error:
            begin = self._map(number)[first : min(end, first + 60)]
            what = f"data: {self.show(number)}: a line {self.not_read}: {error}"
            raise DataError(f"{what}\n  it begins {begin!r}") from error

    @override
    def read_many(self, indices: Sequence[int], one_pass: Pass) -> list[Item]:
        if len(self.files) != 1:
            return super().read_many(indices, one_pass)
        if indices and min(indices) < 0:
            raise IndexError(f"{min(indices)} is below 0")
        starts, data, parse = self._starts[0].data, self._map(0), self.parse
        return [parse(data[starts[at] : starts[at + 1]].decode()) for at in indices]

    not_read = "is no UTF-8"
    """What is wrong with a line that cannot be read."""

    @abstractmethod
    def parse(self, line: str) -> Item:
        """The item of a line."""

    def _map(self, number: int) -> mmap.mmap | bytes:
        if number not in self._maps:
            with Path(self.files[number]).open("rb") as file:
                is_empty = not file.seek(0, 2)
                self._maps[number] = (
                    b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                )
        return self._maps[number]

    @override
    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_maps": {}}  # each process maps the files itself


def _find_line_ends(data: Bytes) -> Offsets:
    return np.flatnonzero(np.equal(data, ord("\n"))) + 1


@final
class Text(_Lines):
    """The lines of text files, without their ends.

    Args:
        path: A path, a pattern such as data/*.txt, a URL, or a list of them.
    """

    @override
    def find_ends(self, data: Bytes) -> Offsets:
        return _find_line_ends(data)

    @override
    def parse(self, line: str) -> str:
        return line.rstrip("\r\n")


@final
class Jsonl(_Lines):
    """The values of files with one JSON value in each line; empty lines are skipped.

    Args:
        path: A path, a pattern such as data/*.jsonl, a URL, or a list of them.
    """

    blank = b" \t\r\n"
    not_read = "is no JSON"

    @override
    def find_ends(self, data: Bytes) -> Offsets:
        return _find_line_ends(data)

    @override
    def parse(self, line: str) -> Item:
        try:
            value, end = _scan(line, 0)  # without the two searches for spaces of json.loads
        except StopIteration:
            return json.loads(line)
        return value if line[end:] == "\n" else json.loads(line)


@final
class Csv(_InFiles):
    """The rows of CSV files as dicts; the first row has the names.

    Args:
        path: A path, a pattern such as data/*.csv, a URL, or a list of them.
        delimiter: What separates two values.
        numbers: Turn values that look like numbers into numbers.
    """

    def __init__(
        self, path: str | list[str], delimiter: str = ",", *, numbers: bool = True
    ) -> None:
        self.path, self.delimiter, self.numbers = path, delimiter, numbers
        self._lines = _CsvLines(path)
        self._names: list[list[str]] = []

    @override
    def index_file(self, number: int, file: str) -> int:
        if not number:
            self._lines = _CsvLines(self.path)
            self._lines.files, self._lines.delimiter = self.files, self.delimiter
        count = self._lines.index_file(number, file)
        names = self._cells(number, 0) if count else []
        repeated = [name for name, times in Counter(names).items() if times > 1]
        if repeated:
            raise DataError(
                f"data: {self.show(number)}: several columns have the name {repeated[0]!r}\n"
                "  give each column its own name in the first row"
            )
        self._names = [*self._names[:number], names]
        return max(count - 1, 0)

    @override
    def read_item(self, number: int, at: int) -> dict[str, Any]:
        cells, names = self._cells(number, at + 1), self._names[number]
        if len(cells) != len(names):
            raise DataError(
                f"data: {self.show(number)}: row {at + 1} has {len(cells)} values, and the first "
                f"row {len(names)} names\n  set delimiter, or correct the row"
            )
        values = map(_as_number, cells) if self.numbers else cells
        return dict(zip(names, values, strict=True))

    def _cells(self, number: int, at: int) -> list[str]:
        text = self._lines.read_item(number, at)
        if len(text) > csv.field_size_limit():
            csv.field_size_limit(len(text))
        lines = io.StringIO(text, newline="\n")  # other line ends are part of a value
        try:
            return next(csv.reader(lines, delimiter=self.delimiter), [])
        except csv.Error as error:
            what = f"data: {self.show(number)}: row {at} is no CSV: {error}"
            raise DataError(f"{what}\n  it begins {text[:60]!r}") from error


@final
class _CsvLines(_Lines):
    """Rows of CSV files; a line end inside of quotes is part of a value."""

    blank = b"\r\n"

    delimiter = ","

    @override
    def find_ends(self, data: Bytes) -> Offsets:
        ends, quotes = _find_line_ends(data), np.flatnonzero(np.equal(data, ord('"')))
        if not len(quotes):
            return ends
        # A quote opens a value only at its start; another one, as in 5" pipe, is an ordinary byte.
        before = data[np.maximum(quotes[::2] - 1, 0)]
        is_opening = np.isin(before, np.frombuffer(f'\n"{self.delimiter}'.encode(), np.uint8))
        first = len(BOM_UTF8) if data[: len(BOM_UTF8)].tobytes() == BOM_UTF8 else 0
        if np.all(is_opening | (quotes[::2] == first)):
            outside: Offsets = ends[np.searchsorted(quotes, ends) % 2 == 0]
            return outside
        lines = io.StringIO(data.tobytes()[first:].decode(errors="replace"), newline="\n")
        reader = csv.reader(lines, delimiter=self.delimiter)
        last_lines = np.fromiter((reader.line_num for _ in reader), dtype=np.int64)
        return np.append(ends, len(data))[last_lines - 1]

    @override
    def parse(self, line: str) -> str:
        return line.strip("\r\n")


def _as_number(text: str) -> str | int | float | None:
    if not text:
        return None
    if "_" in text:  # Python's own spelling: 1_2 is a name here, not 12
        return text
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


@final
class Parquet(_InFiles):
    """The rows of Parquet files as dicts.

    Args:
        path: A path, a pattern such as data/*.parquet, a URL, or a list of them.
        columns: The columns to read; null: all.
        groups: Row groups that are kept in memory; rows in random order need many of them.
    """

    def __init__(
        self,
        path: str | list[str],
        columns: list[str] | None = None,
        groups: Annotated[int, AtLeast(1)] = 16,
    ) -> None:
        self.path, self.columns, self.groups = path, columns, groups
        self._group_ends: list[list[int]] = []
        self._opened: dict[int, Any] = {}
        self._tables: OrderedDict[tuple[int, int], list[Item]] = OrderedDict()

    @override
    def index_file(self, number: int, file: str) -> int:
        facts = self._open(number).metadata
        sizes = [facts.row_group(group).num_rows for group in range(facts.num_row_groups)]
        self._group_ends = [*self._group_ends[:number], list(accumulate(sizes))]
        return sum(sizes)

    @override
    def read_item(self, number: int, at: int) -> Item:
        ends = self._group_ends[number]
        group = bisect_right(ends, at)
        rows = self._tables.get((number, group))
        if rows is None:
            rows = self._open(number).read_row_group(group, columns=self.columns).to_pylist()
            self._tables[number, group] = rows
            if len(self._tables) > self.groups:
                self._tables.popitem(last=False)
        return dict(rows[at - (ends[group - 1] if group else 0)])

    def _open(self, number: int) -> Any:  # noqa: ANN401 - pyarrow has no types
        if number not in self._opened:
            try:
                from pyarrow import parquet  # type: ignore[import-untyped]
            except ImportError as error:
                raise _missing("pyarrow", "data") from error
            try:
                opened = parquet.ParquetFile(self.files[number], memory_map=True)
            except (OSError, ValueError) as error:
                raise _unreadable(self.show(number), "a Parquet file", error) from error
            for name in self.columns or ():
                if name.partition(".")[0] not in opened.schema_arrow.names:
                    hint = suggest(name, opened.schema_arrow.names)
                    raise DataError(f"data: {self.show(number)} has no column {name!r}\n  {hint}")
            self._opened[number] = opened
        return self._opened[number]

    @override
    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_opened": {}, "_tables": OrderedDict()}


@final
class ImageFolder(_Indexed):
    """Images in one folder per class: dicts of image, label and path.

    An image is an array of bytes of shape (channels, height, width); labels number the folders in
    the order of their names. Images directly in the folder have no label.

    Args:
        path: The folder, or its URL.
        size: Height and width to which images are resized; null: as they are.
        mode: RGB for three channels, L for one.
    """

    def __init__(
        self, path: str, size: tuple[int, int] | None = None, mode: Literal["RGB", "L"] = "RGB"
    ) -> None:
        self.path, self.size, self.mode = path, size, mode

    @override
    def prepare(self) -> None:
        root = local_path(self.path, is_folder=True)
        if not root.is_dir():
            raise DataError(f"data: no folder {self.path!r}\n  give a folder of images")
        shown = (one for one in root.iterdir() if not one.name.startswith("."))
        folders = sorted(one for one in shown if one.is_dir())
        self.classes = [one.name for one in folders]
        self.samples = [
            (str(file), label)
            for label, folder in [*enumerate(folders), (None, root)]
            for file in sorted(folder.glob("*" if label is None else "**/*"))
            if file.suffix.lower() in _IMAGES and not file.name.startswith(".")
        ]
        if not self.samples:
            raise DataError(
                f"data: no images in the folder {self.path!r}\n"
                f"  it needs files that end with {', '.join(_IMAGES)}"
            )

    @override
    def __len__(self) -> int:
        return len(self.samples)

    @override
    def read(self, index: int, one_pass: Pass) -> dict[str, Any]:
        path, label = self.samples[index]
        try:
            found = {"image": read_image(path, self.size, self.mode), "path": path}
        except (OSError, SyntaxError, ValueError) as error:  # of Pillow, for broken files
            raise DataError(f"data: {path} cannot be read as an image\n  {error}") from error
        return found if label is None else found | {"label": label}


def refuse_other_labels(source: ImageFolder, known: ImageFolder, split: str) -> None:
    """Refuse a folder whose classes have other numbers than those of the training data."""
    numbers = {name: number for number, name in enumerate(known.classes)}
    for number, name in enumerate(source.classes):
        expected = numbers.get(name, number)
        if number != expected:
            short, whole = (source, known) if number < expected else (known, source)
            missing = next(one for one in whole.classes if one not in short.classes)
            raise DataError(
                f"data.{split}: the class {name!r} has the label {number}, and in data.train "
                f"{expected}\n  folders are numbered by name: create an empty one, "
                f"mkdir {Path(short.path) / missing}"
            )


def read_image(
    file: Any,  # noqa: ANN401 - a path or an open file
    size: tuple[int, int] | None = None,
    mode: str = "RGB",
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """An image as an array of bytes of shape (channels, height, width)."""
    try:
        from PIL import Image
    except ImportError as error:
        raise _missing("pillow", "data") from error
    with Image.open(file) as image:
        if image.mode.startswith(("I", "F")):  # Pillow would cut all values above 255
            raise ValueError(
                f"its pixels have more than 8 bits (mode {image.mode}); convert it, or read it "
                "with a function of yours behind `files`"
            )
        made = image if image.mode == mode else image.convert(mode)
        if size is not None:
            made = made.resize((size[1], size[0]))
        pixels = np.asarray(made)
    return np.ascontiguousarray(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))


@final
class Arrays(_Indexed):
    """The rows of NumPy files as dicts: ``{type: arrays, image: x.npy, label: y.npy}``.

    Args:
        files: A path of an ``.npy`` file for each entry of a sample; they are not read into memory.
    """

    def __init__(self, **files: str) -> None:
        self.paths = files
        self._arrays: dict[str, np.ndarray[Any, Any]] = {}

    @override
    def prepare(self) -> None:
        lengths = {name: len(array) for name, array in self._open().items()}
        if len(set(lengths.values())) != 1:
            raise DataError(
                f"data: arrays have different lengths: {lengths}\n  give one row for each sample"
            )

    def _open(self) -> dict[str, np.ndarray[Any, Any]]:
        if not self._arrays:
            self._arrays = {name: self._load(path) for name, path in self.paths.items()}
        return self._arrays

    def _load(self, path: str) -> np.ndarray[Any, Any]:
        try:
            found: np.ndarray[Any, Any] = np.load(local_path(path), mmap_mode="r")
            len(found)
        except (OSError, ValueError, TypeError) as error:
            what = "a NumPy file with a row for each sample"
            raise _unreadable(path, what, error) from error
        return found

    @override
    def __len__(self) -> int:
        return min(map(len, self._open().values()), default=0)

    @override
    def read(self, index: int, one_pass: Pass) -> dict[str, Any]:
        return {name: np.array(array[index]) for name, array in self._open().items()}

    @override
    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_arrays": {}}


@final
class Safetensors(_Indexed):
    """The rows of the tensors in a safetensors file, as dicts of arrays.

    Args:
        path: The file; its tensors have one row for each sample, and are not read into memory.
        names: The tensors to read; null: all.
    """

    def __init__(self, path: str, names: list[str] | None = None) -> None:
        self.path, self.names = path, names
        self._slices: dict[str, Any] = {}
        self._file: Any = None

    def _open(self) -> dict[str, Any]:
        if not self._slices:
            from safetensors import SafetensorError, safe_open

            try:
                self._file = safe_open(str(local_path(self.path)), framework="np")
                names = self.names or list(self._file.keys())
                self._slices = {name: self._file.get_slice(name) for name in names}
            except (OSError, SafetensorError) as error:
                raise _unreadable(self.path, "a safetensors file", error) from error
            shapes = {name: one.get_shape() for name, one in self._slices.items()}
            rows = {shape[0] if shape else None for shape in shapes.values()}
            if len(rows) > 1 or None in rows:
                raise DataError(
                    f"data: {self.path}: tensors have different numbers of rows: {shapes}\n"
                    "  give one row for each sample, or set names"
                )
        return self._slices

    @override
    def __len__(self) -> int:
        return min((one.get_shape()[0] for one in self._open().values()), default=0)

    @override
    def read(self, index: int, one_pass: Pass) -> dict[str, Any]:
        if not 0 <= index < len(self):
            raise IndexError(f"{index} is not below {len(self)}")
        return {name: one[index : index + 1][0] for name, one in self._open().items()}

    @override
    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_slices": {}, "_file": None}


@final
class HuggingFace(_Indexed):
    """The rows of a Hugging Face dataset that ``save_to_disk`` wrote.

    Args:
        path: Its folder, or its URL.
        split: The split, if the folder has several.
    """

    def __init__(self, path: str, split: str | None = None) -> None:
        self.path, self.split = path, split
        self._dataset: Any = None
        self.files: list[str] = []
        """Its files; a cache behind it is written again when they change."""

    @override
    def prepare(self) -> None:
        folder = local_path(self.path, is_folder=True)
        found = (one for one in folder.rglob("*") if not one.name.startswith("cache-"))
        self.files = sorted(str(one) for one in found if one.is_file())

    def _open(self) -> Any:  # noqa: ANN401 - datasets is optional
        if self._dataset is None:
            try:
                from datasets import load_from_disk
            except ImportError as error:
                raise _missing("datasets", "huggingface") from error
            try:
                found = load_from_disk(str(local_path(self.path, is_folder=True)))
            except (OSError, ValueError) as error:
                raise _unreadable(self.path, "what save_to_disk wrote", error) from error
            if hasattr(found, "keys") and self.split not in found:
                raise DataError(
                    f"data: {self.path!r} has the splits {', '.join(found)}\n  set split"
                )
            self._dataset = found[self.split] if hasattr(found, "keys") else found
        return self._dataset

    @override
    def __len__(self) -> int:
        return len(self._open())

    @override
    def read(self, index: int, one_pass: Pass) -> Item:
        return self._open()[index]

    @override
    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_dataset": None}


def _unreadable(path: str, what: str, error: Exception) -> DataError:
    if not is_url(path) and not Path(path).expanduser().exists():
        here = f"relative paths start from the current folder, {Path.cwd()}"
        return DataError(f"data: no file or folder {path!r}\n  {here}")
    return DataError(f"data: {path} cannot be read as {what}\n  {str(error).strip()}")


def _missing(package: str, extra: str) -> DataError:
    return DataError(
        f"data: needs {package}, which is not installed\n  pip install 'epochal[{extra}]'"
    )


def as_source(value: object) -> Pipe:
    """A source of the items of an object: a list, a dataset, or anything that can be iterated."""
    if isinstance(value, Pipe):
        return value
    has_index = hasattr(value, "__getitem__") and hasattr(value, "__len__")
    if has_index and not isinstance(value, dict | str | bytes):
        return Items(value)  # type: ignore[arg-type]  # reason: used like a list
    if isinstance(value, Iterable) and not isinstance(value, dict | str | bytes):
        return Iterated(value)
    raise DataError(
        f"data: a {type(value).__name__} has no items\n"
        "  start a chain with a source, a list, a dataset or an iterable"
    )
