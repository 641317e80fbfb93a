"""A hook that lets the model write a few lines after each evaluation."""

from __future__ import annotations

import torch
from typing_extensions import override

import epochal as ep


class Sample(ep.Hook):
    """Keep what the model writes in the run's folder, as ``media/sample-<step>.txt``.

    Args:
        prompt: What the text begins with.
        length: How many characters to draw.
        seed: Of the draws; apart from the run's generators, which stay untouched.
    """

    def __init__(self, *, prompt: str = "def ", length: int = 200, seed: int = 0) -> None:
        self.prompt = prompt
        self.length = length
        self.seed = seed

    @override
    def eval_end(self, run: ep.Run, split: str, metrics: dict[str, float]) -> None:
        if run.dir is None:  # --no-file: there is no record to add to
            return
        generator = torch.Generator().manual_seed(self.seed)
        was_training = run.model.training
        run.model.eval()
        text = run.model.write(self.prompt, length=self.length, generator=generator)
        run.model.train(was_training)
        folder = run.dir / "media"
        folder.mkdir(exist_ok=True)
        (folder / f"sample-{run.step}.txt").write_text(text, encoding="utf-8")
