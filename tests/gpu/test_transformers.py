"""Models of transformers are captured, although they read their attention mask in eager steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import epochal as ep

transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # transformers warns of what it will change
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

WORDS, LENGTH, COUNT = 50, 16, 96


def bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    return transformers.BertForSequenceClassification(config)


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=2)
    return transformers.GPT2LMHeadModel(config)


def llama() -> nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    return transformers.LlamaForCausalLM(config)


class Sentences(ep.Task):
    """Sentences of random words.

    Args:
        is_classification: The target is whether the first word comes late in the vocabulary.
        full: How many sentences at the beginning have no padding.
    """

    def __init__(self, *, is_classification: bool, full: int) -> None:
        generator = torch.Generator().manual_seed(0)
        words = torch.randint(WORDS, (COUNT, LENGTH), generator=generator)
        lengths = torch.randint(LENGTH // 2, LENGTH, (COUNT,), generator=generator)
        lengths[:full] = LENGTH
        mask = (torch.arange(LENGTH) < lengths[:, None]).long()
        labels = (words[:, 0] > WORDS // 2).long() if is_classification else words
        if not is_classification:
            labels = labels.masked_fill(mask == 0, -100)
        columns = {"input_ids": words, "attention_mask": mask, "labels": labels}
        samples = [{name: column[row] for name, column in columns.items()} for row in range(COUNT)]
        self.train_loader = DataLoader(samples, batch_size=8)

    def batch_forward(self, model: nn.Module, batch: dict[str, Tensor]) -> Any:
        return model(**batch)

    def batch_loss(self, out: Any, batch: dict[str, Tensor]) -> dict[str, Any]:
        return {"loss": (out.loss, len(batch["labels"]))}


def train(step: str, make: Any, **options: Any) -> tuple[ep.RunResult, dict[str, Any]]:
    choices: dict[str, Any] = {}

    class Look(ep.Hook):
        def run_end(self, run: ep.Run) -> None:
            choices.update(run.choices)

    torch.manual_seed(1)
    result = ep.Experiment(
        task=Sentences(is_classification=make is bert, **options),
        model=make(),
        optim={"type": "AdamW", "lr": 0.003},
        engine={"step": step},
        train={"for": "6ep"},
        choices={"device": "cuda", "no_file": True},
        hooks=[Look()],
    ).fit()
    assert result.ok, result.traceback
    return result, choices


@pytest.mark.parametrize("make", [bert, gpt2, llama])
@pytest.mark.parametrize("full", [0, 24, COUNT], ids=["padded", "padded later", "full"])
def test_a_model_with_an_attention_mask_is_captured(make: Any, full: int) -> None:
    eager, _ = train("eager", make, full=full)
    captured, choices = train("graph", make, full=full)
    assert choices["step"] == "graph", choices
    loss = captured.metrics["train/epoch/loss"]
    assert loss == pytest.approx(eager.metrics["train/epoch/loss"], rel=0.02)
