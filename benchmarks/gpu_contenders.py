"""The contenders of the GPU benchmark; this file is the program of one fresh process each.

Every contender trains the same model on the same batches with AdamW, and calls the watch.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

BEGUN = time.time()

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import gpu_peers as peers  # noqa: E402  # torch takes seconds, which count as well
import gpu_work as work  # noqa: E402
from gpu_epochal import epochal  # noqa: E402

# -- by hand


def hand(
    bench: work.Bench,
    *,
    is_reference: bool = False,
    compiled: bool = False,
    samples: bool = False,
    **options: work.Option,
) -> None:
    """The hand-written loop; as reference it also runs longer, for contenders that compile late."""
    case, device, watch = bench.case, bench.device, bench.watch
    optimizer = work.adamw(bench, **options)
    model = torch.compile(bench.model) if compiled else bench.model
    count = case.steps * (case.passes if is_reference else 1) + 1
    loader = sample_loader(bench, count) if samples else work.make_loader(case, device, count)
    for x, y in loader:
        watch.tick()
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with work.autocast(case, device):
            loss = work.loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def sample_loader(bench: work.Bench, count: int) -> DataLoader[work.Batch]:
    """A loader that fetches sample by sample, as usual."""
    case = bench.case
    assert count <= case.pool, "a second epoch would begin within the measurement"
    dataset = TensorDataset(*(rows[: count * case.batch] for rows in work.make_tensors(case)))
    return DataLoader(dataset, batch_size=case.batch, pin_memory=bench.device.type == "cuda")


def hand_fused(bench: work.Bench) -> None:
    """The hand-written loop with the optimizer that Epochal builds on a CUDA device."""
    if bench.device.type == "cuda":
        lr = torch.tensor(bench.case.lr, device=bench.device)
        hand(bench, fused=True, capturable=True, lr=lr)
    else:
        hand(bench, fused=True)


def hand_captured(bench: work.Bench) -> None:
    """The fastest known loop: model and loss compiled, the whole step captured by hand."""
    if bench.device.type != "cuda":
        raise SystemExit("needs a CUDA device")
    case, device, watch, model = bench.case, bench.device, bench.watch, bench.model
    form = torch.channels_last if case.name == "resnet18" else torch.contiguous_format
    model.to(memory_format=form)
    lr = torch.tensor(case.lr, device=device)
    optimizer = work.adamw(bench, fused=True, capturable=True, lr=lr)
    compute = torch.compile(lambda x, y: work.loss_of(model(x), y))
    loader = work.make_loader(case, device, bench.num_batches)
    still_x, still_y = (tensor.to(device) for tensor in loader.dataset[0])
    still_x = still_x.contiguous(memory_format=form)

    def step() -> None:
        optimizer.zero_grad()
        with work.autocast(case, device):
            loss = compute(still_x, still_y)
        loss.backward()
        optimizer.step()

    before = copy.deepcopy(model.state_dict())
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    _restore(model, optimizer, before)
    del before
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad()
    with torch.cuda.graph(graph):
        step()
    for x, y in loader:
        watch.tick()
        still_x.copy_(x, non_blocking=True)
        still_y.copy_(y, non_blocking=True)
        graph.replay()


@torch.no_grad()
def _restore(model: nn.Module, optimizer: torch.optim.Optimizer, before: dict[str, Tensor]) -> None:
    """Undo the warm-up steps without moving any tensor."""
    for name, tensor in model.state_dict().items():
        tensor.copy_(before[name])
    for state in optimizer.state.values():
        for tensor in state.values():
            tensor.zero_()


# -- one process

Contender = Callable[[work.Bench], None]


def _with(function: Callable[..., None], **options: work.Option) -> Contender:
    return lambda bench: function(bench, **options)


CONTENDERS: dict[str, Contender] = {
    "hand": _with(hand, is_reference=True),
    "hand-samples": _with(hand, samples=True),
    "hand-fused": hand_fused,
    "hand-compile": _with(hand, compiled=True, fused=True),
    "hand-captured": hand_captured,
    "lightning": peers.lightning,
    "fabric": peers.fabric,
    "accelerate": peers.accelerate,
    "transformers": peers.transformers,
    "epochal-eager": _with(epochal, step="eager"),
    "epochal-graph": _with(epochal, step="graph"),
    "epochal-compile": _with(epochal, step="compile"),
    "epochal-auto": _with(epochal, step="auto"),
    "epochal-auto-batches": _with(epochal, step="auto", feed="batches"),
    "epochal-auto-sent": _with(epochal, step="auto", feed="sent"),
    "epochal-auto-resident": _with(epochal, step="auto", feed="resident"),
    "epochal-auto-last": _with(epochal, step="auto", channels_last=True),
}


def main() -> None:
    """Run one contender and write its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=list(work.CASES), required=True)
    parser.add_argument("--contender", choices=list(CONTENDERS), required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--begun", type=float, default=BEGUN)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    words = parser.parse_args()
    case, device = work.get_case(words.case, quick=words.quick), torch.device(words.device)
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    model = work.make_model(case, device)
    watch = work.Watch(case, device, model, words.begun)
    bench = work.Bench(
        case=case,
        device=device,
        model=model,
        watch=watch,
        scratch=words.scratch,
        is_quick=words.quick,
    )
    CONTENDERS[words.contender](bench)
    watch.result |= {"versions": _versions(device), "tolerance": case.tolerance}
    words.out.write_text(json.dumps(watch.result), encoding="utf-8")


def _versions(device: torch.device) -> dict[str, str]:
    found = {"python": sys.version.split()[0], "torch": torch.__version__}
    if device.type == "cuda":
        found |= {"device": torch.cuda.get_device_name(device), "cuda": str(torch.version.cuda)}
    for name in ("lightning", "accelerate", "transformers", "triton"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()
