"""The first example of the README prints what the README shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import forked

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
TASK_PAGE = (Path(__file__).parents[2] / "docs" / "task.md").read_text(encoding="utf-8")
CODE = README.split("```python\n", 1)[1].split("```", 1)[0]
SHOWN = re.findall(r"^    \d\d:\d\d:\d\d (.*)$", README, re.MULTILINE)
SUMMARY = re.search(r"^    (finished .*\n(?:      .*\n)+)", README, re.MULTILINE)
LAZY = """
def __getattr__(name):  # as transformers imports its classes: GPT2Config, GPT2LMHeadModel
    from importlib import import_module
    return getattr(import_module("transformers.models"), name)
"""
MODELS = """
from torch import nn

class GPT2Config:
    def __init__(self, vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12):
        self.vocab_size, self.n_embd = vocab_size, n_embd

class GPT2LMHeadModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size)

    def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs):
        logits = self.head(self.embed(input_ids))
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}
"""
_RUN = "import sys; sys.path.insert(0, sys.argv[1]); from epochal.cli import main; "
_RUN += "sys.exit(main(sys.argv[2:]))"


def normalise(line: str) -> str:
    """A line without durations and folder, which differ from run to run."""
    line = re.sub(r"\([\d.]+ m?s\)|(eta|time|data_time): \S+", "", line)
    line = re.sub(r"steps, .*", "steps", line)
    return re.sub(r"(folder:|record|show|speed) .*", r"\1", line)


@pytest.mark.usefixtures("command_on_path")
def test_first_example_prints_the_output_in_the_readme(tmp_path: Path) -> None:
    done = forked.run("-c", CODE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = {normalise(line.partition(" ")[2]) for line in done.stdout.splitlines()}
    assert len(SHOWN) >= 8
    assert not [line for line in SHOWN if normalise(line) not in printed]
    assert SUMMARY is not None
    wanted = [normalise(line.removeprefix("    ")) for line in SUMMARY[0].splitlines()]
    assert [normalise(line) for line in done.stdout.splitlines()[-len(wanted) :]] == wanted


def test_first_example_has_about_twenty_lines() -> None:
    assert len(CODE.splitlines()) <= 21


def test_config_of_a_hugging_face_model_trains(tmp_path: Path) -> None:
    """With a stand-in for transformers, whose models are called in the same way."""
    library, project = tmp_path / "installed" / "transformers", tmp_path / "project"
    for path, text in {
        library / "__init__.py": LAZY,
        library / "models.py": MODELS,
        project / "words" / "__init__.py": "",
        project / "pyproject.toml": '[tool.epochal]\nroots = ["transformers"]\n',
        project / "book.txt": "the quick brown fox " * 400,
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    files = r"<!-- file: (words/.*) -->\n```\w+\n([\s\S]*?)```"
    for name, text in re.findall(files, README + TASK_PAGE):
        (project / name).write_text(text)
    words = ("run", "words/gpt2.yaml", "--fast", "--device", "cpu")
    done = forked.run("-c", _RUN, str(library.parent), *words, cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "  best     " in done.stdout
