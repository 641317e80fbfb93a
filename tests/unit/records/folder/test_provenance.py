"""Tests of epochal.records.folder.provenance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from epochal.config.node import Node
from epochal.errors import Place, RecordError
from epochal.records.folder.provenance import collect_provenance, explain, redact_provenance


@dataclass(frozen=True)
class FakeRecord:
    provenance: dict[str, Any]
    path: Path = Path("runs/x")


def tree(**entries: Node) -> Node:
    return Node(MappingProxyType(entries))


OVERRIDE = Place("command line", 1, 10, "optim.lr=1e-3", 4)
IN_FILE = Node(0.0003, Place("examples/digits.yaml", 14, 7, "  lr: 3e-4"))
IN_BASE = Node(0.01, Place("base.yaml", 3, 5), layer="base")
DEFAULT = Node(0.001, Place("torch/optim/adamw.py", 20, 1), layer="default")


def explained(*history: Node, key: str = "lr", **owners: str) -> list[str]:
    node: Node | None = None
    for older in reversed(history):
        node = replace(older, replaced=node)
    assert node is not None
    defaults = [(f"optim.{name}", None, owner) for name, owner in owners.items()]
    record = FakeRecord(collect_provenance(tree(optim=tree(**{key: node})), defaults))
    return explain(record, f"optim.{key}").splitlines()


def test_an_override_is_explained_with_its_text_and_what_it_replaced() -> None:
    override = Node(0.001, OVERRIDE, layer="command line")
    assert explained(override, IN_FILE, IN_BASE) == [
        "optim.lr = 0.001",
        "  set by command line: optim.lr=1e-3",
        "  over 0.0003 from examples/digits.yaml:14:7",
        "  over 0.01 from base.yaml:3:5 (base)",
    ]


def test_defaults_name_their_owner() -> None:
    owned = {"lr": "torch.optim.AdamW"}
    assert explained(DEFAULT, **owned) == ["optim.lr = 0.001", "  default of torch.optim.AdamW"]
    assert explained(DEFAULT)[1] == "  default of torch/optim/adamw.py"
    assert explained(Node("train", Place("default"), layer="default"))[1] == "  default"
    assert explained(IN_FILE, DEFAULT, **owned) == [
        "optim.lr = 0.0003",
        "  set in examples/digits.yaml:14:7",
        "  over 0.001 default of torch.optim.AdamW",
    ]
    betas = Node((DEFAULT, DEFAULT), DEFAULT.place, layer="default")
    found = explained(betas, key="betas", betas="torch.optim.AdamW")
    assert found[2:] == ["optim.betas.1 = 0.001", "  default of torch.optim.AdamW"]


def test_variants_sweeps_and_templates_are_named() -> None:
    variant = Node("big", Place("digits.yaml", 30, 4), layer="variant")
    assert explained(variant)[1] == "  set in digits.yaml:30:4 (variant)"
    first = Node(1, OVERRIDE, layer="command line")
    assert explained(Node(2, OVERRIDE, layer="sweep"), first)[2] == "  over 1 from command line"
    node = Node(256, Place("digits.yaml", 3, 1), template="${model.width}")
    assert explained(node)[1] == "  set in digits.yaml:3:1, written as ${model.width}"


def test_value_from_the_environment_is_not_recorded() -> None:
    node = Node("hunter2", Place("digits.yaml", 3, 1), template="${env:PASSWORD}")
    recorded = collect_provenance(tree(key=node))
    assert "hunter2" not in str(recorded)
    assert recorded["key"][0]["value"] == "${env:PASSWORD}"


def test_values_are_shown_as_they_would_be_written() -> None:
    for value, shown in [
        (None, "null"),
        (True, "true"),
        ("a b", '"a b"'),
        ((), "[]"),
        (float("inf"), "inf"),
    ]:
        assert explained(Node(value, Place("a.yaml", 1, 1)))[0] == f"optim.lr = {shown}"


def test_origins_are_plain_data_newest_first() -> None:
    node = replace(IN_FILE, replaced=IN_BASE)
    assert collect_provenance(tree(lr=node)) == {
        "lr": [
            {
                **{"value": 0.0003, "source": "examples/digits.yaml"},
                **{"line": 14, "column": 7, "layer": "file"},
            },
            {"value": 0.01, "source": "base.yaml", "line": 3, "column": 5, "layer": "base"},
        ]
    }


def test_lists_are_recorded_by_index() -> None:
    hooks = Node((tree(patience=Node(3, Place("a.yaml", 9, 2))),))
    found = collect_provenance(tree(hooks=hooks, empty=Node(())))
    assert list(found) == ["hooks.0.patience", "empty"]
    assert collect_provenance(tree()) == {}


def test_section_explains_every_value_in_it() -> None:
    optim = tree(lr=IN_FILE, eps=DEFAULT)
    record = FakeRecord(collect_provenance(tree(optim=optim, optimum=IN_BASE)))
    lines = explain(record, "optim").splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        *("optim.lr = 0.0003", "optim.eps = 0.001"),
    ]


def test_unknown_keys_are_refused_with_a_hint() -> None:
    record = FakeRecord(collect_provenance(tree(optim=tree(lr=IN_FILE))))
    with pytest.raises(
        RecordError, match=r"optim\.lrr: not in the config of runs/x\n  did you mean 'optim\.lr'\?"
    ):
        explain(record, "optim.lrr")
    with pytest.raises(
        RecordError, match=r"learning_rate: .*\n  `--explain optim` shows all of it"
    ):
        explain(record, "optim.learning_rate")
    with pytest.raises(RecordError, match=r"known: optim\.lr"):
        explain(record, "")


def test_damaged_provenance_is_explained_without_a_crash() -> None:
    for origins in [[], None, 3, [None], ["x"], [{}]]:
        assert explain(FakeRecord({"a": origins}), "a").startswith("a")


def test_lost_provenance_differs_from_an_unknown_key(tmp_path: Path) -> None:
    record = FakeRecord({}, tmp_path)
    path = tmp_path / "config" / "provenance.json"
    with pytest.raises(RecordError) as caught:
        explain(record, "optim.lr")
    assert str(caught.value) == (
        f"{path}: is missing, so the origin of 'optim.lr' is unknown\n"
        f"  the values themselves are in {path.parent}"
    )
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(RecordError, match="is damaged or empty"):
        explain(record, "optim.lr")


def test_secrets_are_redacted_and_their_origin_stays() -> None:
    typed = Place("command line", 1, 10, "db.password=abcdef")
    password = Node("abcdef", typed, layer="command line", replaced=Node("ghijkl", IN_FILE.place))
    found = redact_provenance(collect_provenance(tree(db=tree(password=password, port=IN_FILE))))
    newest, older = found["db.password"]
    assert newest["value"] == older["value"] == "<redacted>"
    assert newest["text"] == "db.password=<redacted>"
    assert (older["source"], older["layer"]) == ("examples/digits.yaml", "file")
    assert found["db.port"] == collect_provenance(tree(db=tree(port=IN_FILE)))["db.port"]
