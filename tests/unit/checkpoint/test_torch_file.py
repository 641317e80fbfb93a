"""Tests of weights in files of ``torch.save``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from epochal.checkpoint import load_weights
from epochal.checkpoint.weights import init_weights
from epochal.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights.pt"


class RunsCode:
    """Runs code if it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('code was run')",))


def test_state_dicts_are_found_where_scripts_put_them(path: Path) -> None:
    saved = nn.Linear(2, 2)
    state = saved.state_dict()
    for what in (
        state,
        {"epoch": 3, "state_dict": state, "optimizer": {"state": {}}},
        {"model": state, "step": torch.tensor(1)},
        {"state_dict": {f"model.{name}": one for name, one in state.items()}},
        {f"module.{name}": one for name, one in state.items()},
    ):
        torch.save(what, path)
        model = nn.Linear(2, 2)
        assert init_weights(model, path).num_loaded == 2, what
        assert torch.equal(model.weight, saved.weight), what


def test_old_files_of_torch_save_are_read(path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), path, _use_new_zipfile_serialization=False)
    assert sorted(load_weights(path)) == ["bias", "weight"]


def test_names_that_do_not_match_are_listed(path: Path) -> None:
    torch.save({"weight": torch.ones(2, 2), "scale": torch.ones(1)}, path)
    with pytest.raises(CheckpointError) as caught:
        init_weights(nn.Linear(2, 2), path)
    assert str(caught.value).splitlines() == [
        f"{path}: does not fit the model",
        "  missing in the file: bias",
        "  not in the model: scale",
        "  name the file of this model, or load what fits with strict: false",
    ]
    found = init_weights(nn.Linear(2, 2), path, strict=False)
    assert (found.missing, found.unexpected) == (("bias",), ("scale",))


def test_code_in_a_file_is_never_run(path: Path) -> None:
    for what, name in ((nn.Linear(2, 2), "Linear"), ({"model": {}, "more": RunsCode()}, "exec")):
        torch.save(what, path)
        with pytest.raises(
            CheckpointError, match=rf"weights\.pt: contains \S*{name}, and reading that could run"
        ):
            load_weights(path)


def test_files_without_weights_and_damaged_files_are_errors(path: Path) -> None:
    torch.save({"epoch": 3, "optimizer": {}}, path)
    with pytest.raises(
        CheckpointError, match=r"has no state dict: its keys are 'epoch', 'optimizer'\n  save one"
    ):
        load_weights(path)
    torch.save(5, path)
    with pytest.raises(CheckpointError, match="has no state dict: int"):
        load_weights(path)
    for is_new in (True, False):
        torch.save(nn.Linear(2, 2).state_dict(), path, _use_new_zipfile_serialization=is_new)
        data = path.read_bytes()
        for length in range(2, len(data), 200):
            path.write_bytes(data[:length])
            with pytest.raises(CheckpointError):
                load_weights(path)
