"""The checked config and the parts so far, as the build steps need them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from epochal.engine.measure.phase_timer import PhaseTimer

if TYPE_CHECKING:
    import torch

    from epochal.check import Spec
    from epochal.config import Node
    from epochal.engine import Task
    from epochal.engine.loss.loss import Loss
    from epochal.experiment.build.builder import Builder
    from epochal.experiment.config.arguments import Args
    from epochal.experiment.config.inputs import GivenParts


@final
@dataclass(frozen=True, kw_only=True)
class Assembly:
    """The checked config, the builder of components, and the given parts."""

    config: Node
    """The expanded config."""

    args: Args
    """The same with attribute access: ``assembly.args.optim.lr``."""

    builder: Builder
    device: torch.device
    given: GivenParts
    task: Task | None = None
    """None until it is built."""

    loss: Loss | None = None
    """None until it is built; its parameters are trained too."""

    is_debug: bool = False
    is_resumed: bool = False
    """Whether the weights come from a checkpoint and not from ``init_from``."""

    written: Node | None = None
    """The config without defaults, if there is one."""

    times: PhaseTimer = field(default_factory=PhaseTimer)
    """Measures how long each phase of the run takes."""

    num_defaults: int = 0
    source: str = ""
    """The config file, if there is one."""

    def spec(self, section: str) -> Spec | None:
        """The spec of a section, if the config has that section."""
        node = self.config.find(section)
        return None if node is None else self.builder.read(node, section)

    def options(self, section: str) -> dict[str, Any]:
        """The values of a section that has only options, by argument name."""
        return self.builder.read_options(section, self.config.mapping[section])

    @property
    def seed(self) -> int:
        """The seed of the run."""
        seed: int = self.args.seed
        return seed
