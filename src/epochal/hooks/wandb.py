"""WandB: points and media of a run in Weights & Biases, online or offline."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Literal, final

from typing_extensions import override

from epochal import durable
from epochal.engine.tracking.mirror import Entry, Sink, fork_safe_import
from epochal.engine.tracking.tracker import CLOSE_SECONDS, TrackedRun, Tracker
from epochal.records.folder.media import get_media_kind
from epochal.records.folder.tracker_links import write_tracker_url

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from epochal.engine.interfaces.every import Every
    from epochal.records.folder.media import Media

KNOWN_FILE = "known.json"
_NOT_SHOWN = ("svg", "mov", "parquet")  # formats that W&B cannot show


@final
class WandB(Tracker):
    """Shows a run in Weights & Biases, under the name of its folder.

    Local files of W&B are in the run's folder. W&B accepts steps only in order and cannot
    overwrite: for steps that a run repeats it keeps the first values. It shows images, sounds,
    videos, texts and tables that the run saves.

    Args:
        project: By default that of the run.
        entity: User or team; by default that of the login.
        mode: ``offline`` only writes files, for ``wandb sync`` to send later.
        group: The group of the run.
        every: How often training points are sent; 0 sends only those of epochs.
    """

    package = "wandb"

    def __init__(
        self,
        *,
        project: str | None = None,
        entity: str | None = None,
        mode: Literal["online", "offline"] = "online",
        group: str | None = None,
        every: Every = "100st",  # type: ignore[assignment]  # the schema shows what users type
    ) -> None:
        self._project, self._entity, self._group = project, entity, group
        self._mode: Literal["online", "offline"] = mode
        super().__init__(every=every)

    @override
    def open(self, source: TrackedRun) -> Sink:
        with fork_safe_import():
            import wandb

        run = wandb.init(
            project=self._project or source.project or None,
            entity=self._entity,
            group=self._group,
            mode=self._mode,
            dir=str(source.dir),
            id=source.dir.name,
            resume="allow",
            name=source.tag or None,
            notes=source.desc or None,
            config=source.read_config(),
            reinit="create_new",
            # The run's record has its own log and facts about the machine. W&B would also send
            # the whole command line, with the secrets in it.
            settings=wandb.Settings(
                console="off",
                silent=True,
                disable_git=True,
                x_disable_meta=True,
                **find_limits(wandb),
            ),
        )
        write_tracker_url(source.dir, self.package, getattr(run, "url", None))
        return WandBSink(wandb, run, source.dir / "wandb" / KNOWN_FILE)

    @override
    def describe(self, run_dir: Path | None) -> str:
        where = f"project {self._project}" if self._project else "W&B"
        return f"{where}, {self._mode}"


@final
class WandBSink(Sink):
    """Writes one W&B run, and a file with the last step per name, which W&B does not return."""

    def __init__(self, wandb: Any, run: Any, known_file: Path) -> None:  # noqa: ANN401 - of an optional package
        self._wandb, self._run = wandb, run
        self._known_file = known_file
        self._known: dict[str, int] = durable.find_object(known_file)
        self._step = max(self._known.values(), default=-1)

    @override
    def write(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._log(dict(entry.values), entry.step)
        durable.write_json(self._known_file, self._known)

    @override
    def show(self, media: Media) -> None:
        if media.step < self._step or (shown := to_wandb(self._wandb, media)) is None:
            return
        self._log({media.title: shown}, media.step)
        durable.write_json(self._known_file, self._known)

    def _log(self, values: dict[str, Any], step: int) -> None:
        if step >= self._step:
            self._run.log(values, step=step)
            self._step = step
            self._known |= dict.fromkeys(values, step)

    @override
    def read_known(self, names: Iterable[str]) -> dict[str, int]:
        return {name: self._known[name] for name in names if name in self._known}

    @override
    def has(self, media: Media) -> bool:
        return media.step <= self._known.get(media.title, -1)

    @override
    def close(self, *, has_failed: bool) -> None:
        try:
            self._run.finish(exit_code=1 if has_failed else 0)
        except TimeoutError:
            rest = f"`wandb sync {self._run.settings.sync_dir}` sends the rest"
            raise TimeoutError(
                f"not everything was sent within {CLOSE_SECONDS:.0f} s; {rest}"
            ) from None


def to_wandb(wandb: Any, media: Media) -> Any:  # noqa: ANN401 - of an optional package
    """A file as W&B media; None if W&B cannot show it."""
    if media.suffix in _NOT_SHOWN:
        return None
    if media.suffix == "html":
        return wandb.Html(str(media.path), inject=False)
    kind = get_media_kind(media.suffix)
    if kind == "text":
        page = f"<pre>{escape(media.read_text())}</pre>"
        return wandb.Html(page, inject=False, data_is_not_path=True)
    if kind == "table":
        return _to_table(wandb, media)
    types = {"image": wandb.Image, "audio": wandb.Audio, "video": wandb.Video}
    return types[kind](str(media.path)) if kind in types else None


def _to_table(wandb: Any, media: Media) -> Any:  # noqa: ANN401 - of an optional package
    rows = list(media.iter_rows())
    head, rows = (rows[0], rows[1:]) if rows else ([], [])
    width = len(head)
    filled = [[_to_number(cell) for cell in (row + [""] * width)[:width]] for row in rows]
    return wandb.Table(columns=head, data=filled, allow_mixed_types=True)


def _to_number(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def find_limits(wandb: Any) -> dict[str, float]:  # noqa: ANN401 - of an optional package
    """Time limits for closing, if this version of W&B has them: it would also block the exit."""
    limits = {"finish_timeout": CLOSE_SECONDS, "finish_timeout_raises": True}
    return limits if limits.keys() <= getattr(wandb.Settings, "model_fields", {}).keys() else {}
