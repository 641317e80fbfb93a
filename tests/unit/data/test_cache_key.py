"""The key of a cache on disk changes with code and data, and with nothing else."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import epochal as ep
from epochal.data.cache_key import cache_key

if TYPE_CHECKING:
    from pathlib import Path

data = ep.data

CHANGES = {
    "a name of a library": ("import math\ndef f(x): return math.sin(x)", "sin", "cos"),
    "a constant": ("def f(x): return x + 1", "1", "2"),
    "a comprehension": ("def f(x): return [x + y for y in (1, 2)]", "x + y", "x - y"),
    "a set": ("def f(x): return x in {'a', 'b', 'c'}", "'c'", "'d'"),
    "a default": ("def f(x, k=1): return x + k", "k=1", "k=2"),
    "a keyword default": ("def f(x, *, k=1): return x + k", "k=1", "k=2"),
    "a closure": ("def g(k):\n  def f(x): return x + k\n  return f\nf = g(1)", "g(1)", "g(2)"),
    "a lambda": ("f = lambda x: x + 1", "1", "2"),
    "a function that it calls": ("def g(x): return x + 1\ndef f(x): return g(x)", "1", "2"),
    "a global constant": ("K = {'a': [1]}\ndef f(x): return x + K['a'][0]", "[1]", "[2]"),
    "a class with __call__": ("class F:\n  def __call__(self, x): return x + 1\nf = F()", "1", "2"),
    "a class with stream": ("class F:\n  def stream(self, x): yield 1\nf = F()", "1", "2"),
    "a bound method": (
        "class F:\n  def __init__(self, k): self.k = k\n  def go(self, x): return x\nf = F(1).go",
        "F(1)",
        "F(2)",
    ),
    "a pipe": (
        "import epochal as ep\nclass F(ep.data.Pipe):\n"
        "  def read(self, i, p): return self.parent.read(i, p) * 2\nf = F()",
        "* 2",
        "* 3",
    ),
    "a tensor": ("import torch\nK = torch.ones(1)\ndef f(x): return x + K", "ones", "zeros"),
    "recursion": ("def f(x): return f(x - 1) if x > 1 else x", "> 1", "> 2"),
}


@pytest.fixture
def key_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def find(source: str) -> str:
        module = ModuleType("shop_of_keys")
        module.__file__ = str(tmp_path / "shop_of_keys.py")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(source, module.__file__, "exec"), vars(module))
        return cache_key(data.chain([1, 2], module.f).last)

    return find


def test_a_change_of_code_changes_the_key_and_the_same_code_keeps_it(key_of: Any) -> None:
    for what, (source, old, new) in CHANGES.items():
        assert key_of(source) == key_of(source), what
        assert key_of(source) != key_of(source.replace(old, new)), what


def test_a_change_in_another_module_of_the_user_changes_the_key(
    key_of: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = set()
    for number in (1, 2):
        other = ModuleType("other_of_keys")
        other.__file__ = str(tmp_path / "other_of_keys.py")
        monkeypatch.setitem(sys.modules, other.__name__, other)
        exec(f"def g(x): return x + {number}", vars(other))
        keys.add(key_of("import other_of_keys\ndef f(x): return other_of_keys.g(x)"))
    assert len(keys) == 2


def test_a_mix_has_the_same_key_each_time_until_its_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"

    def find() -> str:
        mix = data.Mix([[data.Jsonl(str(file))], [data.Items([3])]])
        chain = data.chain(mix, data.Materialise())
        chain.prepare()
        return cache_key(chain.last)

    file.write_text("1\n")
    first = find()
    assert find() == first
    file.write_text("1\n2\n")
    assert find() != first


def test_a_hugging_face_dataset_that_was_saved_again_changes_the_key(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    keys = []
    for values in ([1, 2], [1, 2], [1, 2, 3]):
        if len(values) != 2 or not keys:
            datasets.Dataset.from_dict({"x": values}).save_to_disk(tmp_path / "kept")
        chain = data.chain(data.HuggingFace(str(tmp_path / "kept")))
        chain.prepare()
        keys.append(cache_key(chain.last))
    assert keys[0] == keys[1] != keys[2]
