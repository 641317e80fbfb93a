"""Chains of pipes in a config are checked without importing what they name."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from epochal.check import check
from epochal.config import load

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import torch.utils.data


def encode(sample, vocab: int = 64):
    return sample


def windows(items, size: int = 4):
    yield from items


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return index


class Lines:
    def __init__(self, path: str):
        self.path = path

    def __iter__(self):
        return iter(())


class Joined:
    def stream(self, items):
        yield from items
"""
SOURCE = {"type": "list", "items": [1, 2]}
FILTER = {"type": "filter", "function": "parts.encode"}


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is wrong with pipes of ``data.train``: key and description of each problem."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts.py").write_text(CODE)

    def find(*pipes: Any, **options: Any) -> list[tuple[str, str]]:
        report = check(load({"data": {"train": {"pipes": list(pipes), **options}}}))
        return [
            (one.key.removeprefix("data.train."), one.what)
            for one in report.problems
            if one.key.startswith("data")
        ]

    return find


def test_good_chains_are_accepted(found) -> None:
    batch = {"type": "batch", "size": 2}
    for pipes in (
        [SOURCE],
        ["parts.Rows", "shuffle", {"type": "parts.encode", "vocab": 3}, batch],
        [{"type": "parts.Lines", "path": "a"}, {"type": "shuffle_buffer", "size": 10}],
        [SOURCE, FILTER, "materialise", "shuffle"],
        [SOURCE, "split_by_worker", FILTER, {"type": "parts.windows", "size": 2}],
        [{"type": "mix", "chains": [[SOURCE], [SOURCE, "shuffle"]], "weights": [1, 2]}],
        [SOURCE, {"type": "pack", "length": 8}, {"type": "batch", "size": 2, "collate": "pad"}],
    ):
        assert found(*pipes) == [], pipes
    assert found(SOURCE, "split_by_worker", FILTER, workers=4) == []
    assert found(SOURCE, FILTER, workers=1, batch_size=None, collate="pad") == []


def test_every_mistake_of_a_chain_is_reported(found) -> None:
    batch = {"type": "batch", "size": 2}
    table: list[tuple[list[Any], dict[str, Any], str, str]] = [
        ([], {}, "pipes", "expected a list of pipes, got []"),
        ([SOURCE, "shufle"], {}, "pipes.1.type", "unknown pipe 'shufle'"),
        ([{**SOURCE, "itms": 1}], {}, "pipes.0.itms", "unknown argument 'itms' of"),
        ([SOURCE, {"type": "batch"}], {}, "pipes.1.size", "missing; "),
        (
            [{"type": "jsonl", "path": ["a.jsonl", "s5://box/a.jsonl"]}],
            {},
            "pipes.0.path.1",
            "'s5://box/a.jsonl': unknown protocol 's5'",
        ),
        ([SOURCE, {"type": "parts.encode", "vocab": "x"}], {}, "pipes.1.vocab", "expected a whole"),
        ([SOURCE, {"type": "parts.encode", "words": 2}], {}, "pipes.1.words", "unknown argument"),
        (
            [{"type": "map", "function": "parts.encode"}],
            {},
            "pipes.0.type",
            "'map' is not a source",
        ),
        ([SOURCE, SOURCE], {}, "pipes.1.type", "'list' is a source, but not the first pipe"),
        (
            [SOURCE, FILTER, "shuffle"],
            {},
            "pipes.2.type",
            "'shuffle' needs an index, and 'filter' before it gives a stream",
        ),
        (
            [SOURCE, "parts.windows", "shuffle"],
            {},
            "pipes.2.type",
            "'shuffle' needs an index, and 'parts.windows' before it gives a stream",
        ),
        ([SOURCE, "parts.Joined", "cache"], {}, "pipes.2.type", "'cache' needs an index"),
        ([SOURCE, batch, batch], {}, "pipes.2.type", "'batch' makes batches of the batches"),
        ([SOURCE, batch], {"batch_size": 4}, "batch_size", "the pipe 'batch' makes the batches"),
        ([SOURCE, batch], {"shuffle": True}, "shuffle", "the pipe 'batch' makes the batches"),
        ([SOURCE, FILTER], {"shuffle": True}, "shuffle", "'filter' gives a stream, which has no"),
        ([SOURCE, FILTER], {"workers": 2}, "workers", "2 workers would each read the whole stream"),
        (
            [SOURCE, "split_by_worker", "split_by_worker"],
            {},
            "pipes.2.type",
            "'split_by_worker' splits once more",
        ),
        (
            [SOURCE, "split_by_worker", "materialise"],
            {},
            "pipes.2.type",
            "'materialise' keeps the items of all parts of 'split_by_worker'",
        ),
        ([SOURCE, batch], {"repeat": 2}, "repeat", "the pipe 'batch' makes the batches"),
        ([SOURCE], {"sampler": "RandomSampler"}, "sampler", "a chain chooses the order"),
        (
            [{"type": "mix", "chains": [[SOURCE], [SOURCE, "shufle"]]}],
            {},
            "pipes.0.chains.1.1.type",
            "unknown pipe 'shufle'",
        ),
        (
            [{"type": "mix", "chains": [[SOURCE, FILTER, "shuffle"]]}],
            {},
            "pipes.0.chains.0.2.type",
            "'shuffle' needs an index, and 'filter' before it gives a stream",
        ),
        ([{"type": "mix", "chain": [[SOURCE]]}], {}, "pipes.0.chain", "unknown argument 'chain'"),
        ([SOURCE], {"type": "parts.Rows"}, "type", "a split has either a type or pipes"),
        ([SOURCE], {"worker": 2}, "worker", "unknown key 'worker'"),
    ]
    for pipes, options, key, what in table:
        problems = found(*pipes, **options)
        assert len(problems) == 1, (pipes, problems)
        assert problems[0][0] == key, problems
        assert problems[0][1].startswith(what), problems


def test_endless_data_to_validate_on_need_a_limit() -> None:
    endless = [SOURCE, {"type": "repeat"}, "shuffle_buffer"]
    table: list[tuple[list[Any], dict[str, Any], int]] = [
        (endless, {}, 1),
        ([*endless, {"type": "take", "count": 3}], {}, 0),
        ([SOURCE, {"type": "repeat", "times": 2}], {}, 0),
        (endless, {"limit_eval_batches": 5}, 0),
        (endless, {"eval_every": 0}, 0),
    ]
    for pipes, train, count in table:
        data = {"dev": {"pipes": pipes}, "train": {"pipes": endless}}
        problems = check(load({"data": data, "train": {"for": "5st", **train}})).problems
        found = [(one.key, one.what) for one in problems if one.key.startswith("data")]
        assert found == [("data.val.pipes.1.type", "'repeat' never ends")] * count, pipes


def test_a_mistake_has_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts.py").write_text(CODE)
    file = tmp_path / "run.toml"
    file.write_text(
        "[data.val]\npipes = [\n"
        '  {type = "list", items = [1]},\n'
        '  {type = "filter", function = "parts.encode"},\n'
        '  {type = "shuffle"},\n]\n'
    )
    (problem,) = (one for one in check(load(file)).problems if one.key.startswith("data"))
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (5, 11)


def test_the_check_imports_neither_torch_nor_the_data(tmp_path: Path) -> None:
    (tmp_path / "parts.py").write_text("raise RuntimeError\n" + CODE)
    (tmp_path / "run.yaml").write_text(
        "task: parts.Rows\ndata: {train: {pipes: [{type: jsonl, path: a}, parts.encode]}}\n"
    )
    code = (
        "import sys; from epochal.check import check; from epochal.config import load;"
        "check(load('run.yaml')); print({'torch', 'parts', 'numpy'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_a_misspelt_sampler_or_collate_is_named_as_such(found) -> None:
    batch = {"type": "batch", "size": 2, "collate": {"type": "padd"}}
    for pipes, options, expected in [
        ([SOURCE], {"sampler": "RandomSampelr"}, ("sampler", "unknown sampler 'RandomSampelr'")),
        ([SOURCE], {"sampler": {"type": "Rndom"}}, ("sampler.type", "unknown sampler 'Rndom'")),
        ([SOURCE], {"collate": "padd"}, ("collate", "unknown collate 'padd'")),
        ([SOURCE], {"collate": {"type": "padd"}}, ("collate.type", "unknown collate 'padd'")),
        ([SOURCE, batch], {}, ("pipes.1.collate.type", "unknown collate 'padd'")),
    ]:
        assert found(*pipes, **options) == [expected], (pipes, options)
    pad = {"type": "pad", "value": -1}
    assert found(SOURCE, collate=pad) == found(SOURCE, {**batch, "collate": pad}) == []
    assert found(SOURCE, collate={"type": "pad", "valu": 1})[0][0] == "collate.valu"
