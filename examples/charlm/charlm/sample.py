"""A hook that saves a text sample of the model after each evaluation."""

from __future__ import annotations

import torch
from typing_extensions import override

import epochal as ep


class Sample(ep.Hook):
    """Write a sample to ``media/sample-<step>.txt`` in the run's folder.

    Args:
        prompt: Start of the text.
        length: Number of characters to sample.
        seed: Seed of the sampling, which does not use the run's generators.
    """

    def __init__(self, *, prompt: str = "def ", length: int = 200, seed: int = 0) -> None:
        self.prompt = prompt
        self.length = length
        self.seed = seed

    @override
    def eval_end(self, run: ep.Run, split: str, metrics: dict[str, float]) -> None:
        if run.dir is None:  # --no-file: there is no run folder
            return
        generator = torch.Generator().manual_seed(self.seed)
        was_training = run.model.training
        run.model.eval()
        text = run.model.write(self.prompt, length=self.length, generator=generator)
        run.model.train(was_training)
        folder = run.dir / "media"
        folder.mkdir(exist_ok=True)
        (folder / f"sample-{run.step}.txt").write_text(text, encoding="utf-8")
