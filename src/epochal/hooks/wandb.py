"""WandB: a run's points for Weights & Biases, online or for later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, final

from typing_extensions import override

from epochal import durable
from epochal.engine.every import Every
from epochal.engine.mirror import Entry, Sink, importing
from epochal.engine.tracker import Source, Tracker

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


NOTE = "known.json"


@final
class WandB(Tracker):
    """Shows a run in Weights & Biases, under the name of its folder.

    What W&B keeps on this machine lies in the run's folder. It takes steps in order and takes
    nothing back: of steps that a run does again it keeps the first values.

    Args:
        project: By default that of the run.
        entity: User or team; by default that of the login.
        mode: ``offline`` writes files only, which ``wandb sync`` sends later.
        group: What runs are put together by.
        every: How often it takes points of training; 0 leaves out those between epochs.
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
        self.every = Every.parse(every)

    @override
    def open(self, source: Source) -> Sink:
        with importing():
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
            # Standard output is the run's own, which has a log of it. So are the facts about the
            # machine: W&B would add the whole command, with the secrets that were typed.
            settings=wandb.Settings(
                console="off", silent=True, disable_git=True, x_disable_meta=True
            ),
        )
        return _History(run, source.dir / "wandb" / NOTE)

    @override
    def describe(self, run_dir: Path | None) -> str:
        where = f"project {self._project}" if self._project else "W&B"
        return f"{where}, {self._mode}"


@final
class _History(Sink):
    """The history of one run of W&B, and a note of how far it goes, which W&B would not tell."""

    def __init__(self, run: Any, note: Path) -> None:  # noqa: ANN401 - of an optional package
        self._run = run
        self._note = note
        self._known: dict[str, int] = durable.find_object(note)
        self._step = max(self._known.values(), default=-1)

    @override
    def write(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.step >= self._step:
                self._run.log(dict(entry.values), step=entry.step)
                self._step = entry.step
                self._known |= dict.fromkeys(entry.values, entry.step)
        durable.write_json(self._note, self._known)

    @override
    def read_known(self, names: Iterable[str]) -> dict[str, int]:
        return {name: self._known[name] for name in names if name in self._known}

    @override
    def close(self, *, has_failed: bool) -> None:
        self._run.finish(exit_code=1 if has_failed else 0)
