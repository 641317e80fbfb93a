"""Output stages: choose columns of outputs and batches, and save them as files or images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from epochal import durable
from epochal.engine.interfaces.output_stage import OutputStage
from epochal.engine.loss.argument_routes import find_by_path, list_names
from epochal.engine.output_pipes import TO_HOST, fail
from epochal.engine.prediction_file import import_parquet
from epochal.engine.samples import iter_rows
from epochal.errors import ConfigError, Problem

if TYPE_CHECKING:
    from epochal.engine.interfaces.output_stage import Samples
    from epochal.engine.interfaces.run import Run
    from epochal.engine.interfaces.task import Batch, Output

OUTPUTS_DIR = "outputs"
"""The folder of a run for the files of its stages."""


@final
class Collect(OutputStage):
    """Chooses the columns that later stages see: parts of output and batch, by name.

    Without it they see what the task's ``postprocess`` keeps, which is the whole output by
    default. The column ``id`` counts the samples unless it is chosen too. Data to predict may lack
    columns of the batch, such as labels; they are left out.

    Args:
        columns: The source of each column, such as ``{text: batch.text, score: out.logits}``.
    """

    def __init__(self, *, columns: dict[str, str]) -> None:
        self._routes = {name: path.split(".") for name, path in columns.items()}
        for name, (source, *_) in self._routes.items():
            if source not in ("out", "batch"):
                what = f"must be a path into out or batch, got {columns[name]!r}"
                hint = f"write out.{name} or batch.{name}"
                raise ConfigError(Problem(f"outputs.columns.{name}", what, hint=hint))
        self._may_lack = False

    @override
    def start(self, run: Run, split: str) -> None:
        self._may_lack = split == "predict"

    @override
    def process(self, samples: Samples, out: Output, batch: Batch) -> Samples:
        chosen: Samples = {"id": samples["id"]}
        for name, (source, *names) in self._routes.items():
            value: Any = find_by_path(out if source == "out" else batch, names)
            if value is None and source == "batch" and self._may_lack:
                continue
            if value is None:
                known = list_names(out if source == "out" else batch)
                fail(self, f"there is no {'.'.join((source, *names))!r}", f"{source} has {known}")
            chosen[name] = TO_HOST(value)
        return chosen


@final
class SaveJsonLines(OutputStage):
    """Writes a line per sample to ``outputs/<split>.jsonl`` of the run.

    The file appears whole at the end of the pass, and replaces the one of the previous pass.

    Args:
        step_tag: Keep a file of each pass, with its step in the name.
    """

    def __init__(self, *, step_tag: bool = False) -> None:
        self._step_tag = step_tag
        self._file: durable.Appender | None = None
        self._path = Path()

    @override
    def start(self, run: Run, split: str) -> None:
        path = prepare_file(run, split, "jsonl", step_tag=self._step_tag)
        if path is not None:
            self._path = path
            self._file = durable.Appender(_partial(path), keep=0)

    @override
    def process(self, samples: Samples) -> None:
        if self._file is not None:
            lines = [durable.encode_json(row) + b"\n" for row in iter_rows(samples)]
            self._file.append(b"".join(lines))

    @override
    def end(self, run: Run, split: str, *, is_whole: bool) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
            _commit(self._path, is_whole=is_whole)


@final
class SaveParquet(OutputStage):
    """Writes a row per sample to ``outputs/<split>.parquet`` of the run; needs pyarrow.

    The file appears whole at the end of the pass, and replaces the one of the previous pass.

    Args:
        step_tag: Keep a file of each pass, with its step in the name.
    """

    def __init__(self, *, step_tag: bool = False) -> None:
        self._step_tag = step_tag
        self._path: Path | None = None
        self._writer: Any = None

    @override
    def start(self, run: Run, split: str) -> None:
        self._path = prepare_file(run, split, "parquet", step_tag=self._step_tag)

    @override
    def process(self, samples: Samples) -> None:
        if self._path is None:
            return
        pyarrow, parquet, _ = import_parquet()
        table = pyarrow.Table.from_pylist(list(iter_rows(samples)))
        if self._writer is None:
            self._writer = parquet.ParquetWriter(_partial(self._path), table.schema)
        self._writer.write_table(table)

    @override
    def end(self, run: Run, split: str, *, is_whole: bool) -> None:
        writer, self._writer = self._writer, None
        if writer is not None and self._path is not None:
            writer.close()
            _commit(self._path, is_whole=is_whole)


@final
class SaveImages(OutputStage):
    """Saves a column of images as media of the run, named by split and id of the sample.

    Args:
        column: The column of images, such as (3, height, width) from 0 to 1.
        limit: Most images of one pass.
    """

    on = ("val", "test")

    def __init__(self, *, column: str, limit: int = 16) -> None:
        self._column, self._limit = column, limit
        self._left = limit

    @override
    def start(self, run: Run, split: str) -> None:
        self._left = self._limit

    @override
    def process(self, samples: Samples, run: Run) -> None:
        images = samples.get(self._column)
        if images is None:
            fail(self, f"there is no column {self._column!r}", f"there are: {', '.join(samples)}")
        for name, image in list(zip(samples["id"], images, strict=False))[: self._left]:
            run.save_media(f"{run.split}/{self._column}/{name}", image, kind="image")
            self._left -= 1


def prepare_file(run: Run, split: str, suffix: str, *, step_tag: bool) -> Path | None:
    """The file of a pass in the folder of the run; None without a record."""
    if run.dir is None:
        return None
    folder = run.dir / OUTPUTS_DIR
    folder.mkdir(exist_ok=True)
    tag = f"{run.step:06}" if step_tag else ""
    return folder / f"{'-'.join(filter(None, (split, run.loader_name, tag)))}.{suffix}"


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def _commit(path: Path, *, is_whole: bool) -> None:
    if is_whole:
        durable.rename(_partial(path), path)
    else:
        durable.remove_file(_partial(path))
