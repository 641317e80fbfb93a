"""One HTML page with the facts about all splits and a sheet of samples; it opens offline."""

from __future__ import annotations

import base64
import re
from itertools import combinations, repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from epochal.inspect.split_report import find_overlap
from epochal.records.folder.media import encode_png
from epochal.text.formatting import format_count, format_value
from epochal.text.html_output import to_html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from epochal.inspect.split_report import FieldReport, Sample, SplitReport

    Render = Callable[[Sample], object]

_MIN_SIDE, _MIN_AUDIO = 8, 1000
_MAX_TEXT, _MAX_TOKENS, _MAX_BARS, _MAX_CELL = 400, 64, 30, 40
_FACTS = ("field", "type", "shapes", "min", "max", "mean", "missing")
_LAYERS = ("boxes", "mask", "masks")  # what is drawn over the picture of a sample
_WINDOW, _HOP = 256, 128
_COLOURS = ("#e07b27", "#3b82c4", "#3a9d5d", "#a35bc2")
_NUMBER = re.compile(r"(under )?-?([\d.]+(e[-+]?\d+)?|nan|inf)( (characters|µs|ms|s))?|")
_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem }
table { border-collapse: collapse; margin: .6rem 0 1.2rem }
td, th { text-align: left; padding: .15rem 1.1rem .15rem 0; vertical-align: top }
th { font-weight: normal }
th { opacity: .6 } .n { text-align: right; font-variant-numeric: tabular-nums }
.sheet { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: 1rem }
.wide { grid-template-columns: repeat(auto-fill, minmax(22rem, 1fr)) }
figure { margin: 0; padding: .5rem; border: 1px solid #8884; border-radius: 6px; overflow: hidden }
figure svg, figure img { width: 100%; image-rendering: pixelated; display: block }
figcaption, pre { font-size: 13px; overflow-wrap: anywhere; margin: .3rem 0 0 }
figcaption, pre { white-space: pre-wrap }
.bar { display: inline-block; height: .7em; background: #3b82c4; border-radius: 2px }
.warn { color: #c2410c } h2 { margin-top: 2.2rem }
"""


def build_page(title: str, reports: Sequence[SplitReport], *, render: Render | None = None) -> str:
    """The page; ``render`` shows a sample instead of the built-in ways."""
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{to_html(title)}</title>",
        f"<style>{_STYLE}</style><h1>Data of {to_html(title)}</h1>",
        _overview(reports),
        *(part for report in reports for part in _split(report, render)),
    ]
    return "\n".join(parts) + "\n"


def list_warnings(reports: Sequence[SplitReport]) -> list[str]:
    """What is probably a mistake in the data."""
    found = []
    for one, other in combinations(reports, 2):
        if (shared := find_overlap(one, other)) > 0:
            count = format_count(shared, "sample")
            found.append(f"{count} both in {one.name} and in {other.name}")
    for report in reports:
        if report.num_duplicates:
            count = format_count(report.num_duplicates, "sample")
            found.append(f"{report.name}: {count} repeated")
        for name, field in report.fields.items():
            if field.num_missing:
                count = format_count(field.num_missing, "missing value")
                found.append(f"{report.name}.{name}: {count}")
        found += [f"{report.name}: {problem}" for problem in report.problems]
    return found


def _overview(reports: Sequence[SplitReport]) -> str:
    head = ["split", "samples", "batches", "read", "duplicates", "time per sample"]
    rows = [
        [
            report.name,
            _count(report.num_samples),
            _count(report.num_batches),
            str(report.num_read),
            str(report.num_duplicates),
            _time(report.seconds / max(report.num_read, 1)),
        ]
        for report in reports
    ]
    warnings = "".join(f"<p class=warn>{to_html(one)}</p>" for one in list_warnings(reports))
    return _table(head, rows) + warnings


def _split(report: SplitReport, render: Render | None) -> Iterator[str]:
    yield f"<h2>{to_html(report.name)}</h2>"
    yield _table(_FACTS, [list(row.values()) for row in list_facts(report)])
    for name, counts in report.labels.items():
        most = max(counts.values())
        rows = "".join(
            f"<tr><td>{to_html(label)}<td class=n>{count}"
            f'<td><span class=bar style="width:{12 * count / most:.2f}rem"></span>'
            for label, count in sorted(counts.items(), key=_by_number)[:_MAX_BARS]
        )
        more = "" if len(counts) <= _MAX_BARS else f"<p>and {len(counts) - _MAX_BARS} more</p>"
        yield f"<h3>Balance of {to_html(name)}</h3><table>{rows}</table>{more}"
    if report.pipe_seconds:
        times = [[name, _time(spent)] for name, spent in report.pipe_seconds.items()]
        yield "<h3>Time per item</h3>" + _table(["pipe", "about"], times)
    if render is None and (columns := _plain_columns(report.examples)):
        cells = [[shorten(sample[name]) for name in columns] for sample in report.examples]
        yield "<h3>Samples</h3>" + _table(columns, cells)
        return
    figures = [show_sample(sample, render) for sample in report.examples]
    has_picture = any("<svg" in one or "<img" in one for one in figures)
    kind = "sheet" if has_picture else "sheet wide"
    yield f"<h3>Samples</h3><div class='{kind}'>{''.join(figures)}</div>"


def _plain_columns(samples: Sequence[Sample]) -> list[str]:
    """The fields of samples that fit into the rows of a table; empty if they do not."""
    names = list(samples[0]) if samples else []
    is_plain = all(
        list(sample) == names
        and all(not np.ndim(one) and len(shorten(one)) <= _MAX_CELL for one in sample.values())
        for sample in samples
    )
    return names if is_plain else []


def _by_number(entry: tuple[str, int]) -> tuple[float, str]:
    text = entry[0]
    return (float(text) if text.lstrip("-").isdigit() else 0.0), text


def list_facts(report: SplitReport) -> list[dict[str, str]]:
    """What is known about each field, as rows of a table."""
    return [
        dict(zip(_FACTS, _describe(name, one), strict=True)) for name, one in report.fields.items()
    ]


def _describe(name: str, field: FieldReport) -> list[str]:
    numbers = [field.least, field.most, field.mean] if field.num_values else []
    shown = [f"{_number(one)} {field.unit}".rstrip() for one in numbers] or ["", "", ""]
    return [name, field.dtype, field.describe_shapes(), *shown, str(field.num_missing)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    columns = [[row[at] for row in rows] for at in range(len(head))]
    kinds = [" class=n" if all(map(_is_number, column)) else "" for column in columns]
    lines = [
        "".join(f"<{tag}{kind}>{to_html(one)}" for one, kind in zip(cells, kinds, strict=True))
        for tag, cells in [("th", head), *(("td", row) for row in rows)]
    ]
    return f"<table><tr>{'<tr>'.join(lines)}</table>"


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _number(value: float) -> str:
    return f"{value:.6g}"


def _count(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def _time(seconds: float) -> str:
    if seconds < 1e-6:
        return "under 1 µs"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.1 else f"{seconds:.2f} s"


def show_sample(sample: Sample, render: Render | None = None) -> str:
    """A figure of one sample: pictures, texts and numbers."""
    if render is not None:
        shown = render(sample)
        picture = find_picture(shown)
        text = "" if picture is not None else f"<pre>{to_html(str(shown))}</pre>"
        return f"<figure>{_draw(picture, {}) if picture is not None else ''}{text}</figure>"
    drawn, lines = "", []
    layers = {name: one for name, one in sample.items() if name.rpartition(".")[2] in _LAYERS}
    for name, value in sample.items():
        picture = None if name in layers else find_picture(value)
        if picture is not None:
            drawn += _draw(picture, {} if _is_sound(np.asarray(value)) else layers)
        elif name not in layers:
            lines.append(f"{name}: {shorten(value)}")
    if not drawn:
        lines += [f"{name}: {shorten(value)}" for name, value in layers.items()]
    return f"<figure>{drawn}<figcaption>{to_html(chr(10).join(lines))}</figcaption></figure>"


def shorten(value: Any) -> str:  # noqa: ANN401 - of any type
    """A value as a short text, for a cell or a caption."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]} ..."
    array = np.asarray(value)
    if array.dtype.kind == "f" and not array.ndim:
        return _number(float(array))
    if value is None:
        return "missing"
    if array.dtype.hasobject or not array.ndim:
        return shorten(str(value))
    shown = " ".join(format_value(one) for one in array.reshape(-1)[:_MAX_TOKENS].tolist())
    more = " ..." if array.size > _MAX_TOKENS else ""
    return (
        f"{shown}{more}" if array.ndim == 1 else f"{'x'.join(map(str, array.shape))}: {shown}{more}"
    )


def find_picture(value: object) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    """An image, or the spectrogram of a sound, as bytes of shape (height, width, channels)."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or array.size == 0:
        return None
    if _is_sound(array):
        array = _spectrogram(array.reshape(-1, array.shape[-1]).mean(axis=0))
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[-1] not in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    array = array[..., None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or min(array.shape[:2]) < _MIN_SIDE:
        return None
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    least, most = float(np.nanmin(array)), float(np.nanmax(array))
    scaled = (np.nan_to_num(array.astype(np.float64)) - least) / ((most - least) or 1.0)
    return np.ascontiguousarray((scaled * 255).astype(np.uint8))


def _is_sound(array: np.ndarray[Any, Any]) -> bool:
    """Whether it has the shape (time) or (channels, time), with one or two channels."""
    is_wave = array.dtype.kind == "f" or array.dtype == np.int16
    is_long = array.ndim in (1, 2) and array.shape[-1] >= _MIN_AUDIO
    return is_wave and is_long and array.size <= 2 * array.shape[-1]


def draw_sheet(samples: Sequence[Sample]) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    """The first picture of each sample in one image, in rows; None if there are none."""
    found = (map(find_picture, sample.values()) for sample in samples)
    pictures = [next((one for one in few if one is not None), None) for few in found]
    shown = [
        one[..., :3] if one.shape[2] > 1 else one.repeat(3, 2)
        for one in pictures
        if one is not None
    ]
    if not shown:
        return None
    height, width = (max(one.shape[axis] for one in shown) + 2 for axis in (0, 1))
    columns = min(len(shown), 8)
    rows = -(-len(shown) // columns)
    sheet = np.full((rows * height, columns * width, 3), 255, np.uint8)
    for number, one in enumerate(shown):
        top, left = number // columns * height, number % columns * width
        sheet[top : top + one.shape[0], left : left + one.shape[1]] = one
    return sheet


def _spectrogram(sound: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Loudness by frequency, low ones at the bottom, over time."""
    starts = range(0, len(sound) - _WINDOW, max(_HOP, len(sound) // 256))
    frames = np.stack([sound[first : first + _WINDOW] for first in starts]) * np.hanning(_WINDOW)
    found: np.ndarray[Any, Any] = np.log1p(np.abs(np.fft.rfft(frames)) * 10).T[::-1]
    return found


def _draw(picture: np.ndarray[Any, np.dtype[np.uint8]], overlays: Mapping[str, Any]) -> str:
    """The picture with its boxes and its mask."""
    height, width = picture.shape[:2]
    layers = [f'<image href="{_uri(picture)}" width="{width}" height="{height}"/>']
    for value in map(np.asarray, overlays.values()):
        if value.shape[-2:] == (height, width):
            uri = _uri(_colour(value.reshape(-1, height, width)))
            layers.append(f'<image href="{uri}" width="{width}" height="{height}"/>')
        elif value.shape[-1:] == (4,):
            layers += map(_box, range(value.size // 4), value.reshape(-1, 4), repeat(width / 64))
    return f'<svg viewBox="0 0 {width} {height}">{"".join(layers)}</svg>'


def _box(number: int, box: np.ndarray[Any, Any], line: float) -> str:
    left, top, right, bottom = map(float, box)
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{right - left:g}" height="{bottom - top:g}" '
        f'fill="none" stroke="{_COLOURS[number % 4]}" stroke-width="{max(line, 0.5):g}"/>'
    )


def _colour(mask: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A half transparent layer with one colour for each number above 0, or for each mask."""
    rgb = [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in _COLOURS]
    table = np.array([[0, 0, 0, 0], *([*one, 120] for one in rgb)], dtype=np.uint8)
    numbers = mask[0].astype(np.int64)
    if len(mask) > 1:
        numbers = ((mask > 0) * np.arange(1, len(mask) + 1)[:, None, None]).max(axis=0)
    return table[np.where(numbers > 0, (numbers - 1) % 4 + 1, 0)]


def _uri(picture: np.ndarray[Any, np.dtype[np.uint8]]) -> str:
    return "data:image/png;base64," + base64.b64encode(encode_png(picture)).decode()
