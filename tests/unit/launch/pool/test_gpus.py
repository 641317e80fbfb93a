"""GPUs are listed as the driver reports them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from epochal.launch.pool.gpus import list_gpus


class NVMLError(Exception):
    pass


def make_nvml(**broken: bool) -> SimpleNamespace:
    """The functions of pynvml that are used, for a machine with three GPUs."""

    def fail(name: str) -> None:
        if broken.get(name):
            raise NVMLError(f"{name} is broken")

    def memory(handle: int) -> SimpleNamespace:
        fail("memory")
        return SimpleNamespace(free=handle * 10, total=100)

    def use(handle: int) -> SimpleNamespace:
        fail("use")
        return SimpleNamespace(gpu=30 + handle, memory=5)

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: fail("init"),
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{'abc'[handle]}",
        nvmlDeviceGetName=lambda handle: "H200",
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetUtilizationRates=use,
    )


def test_visible_gpus_are_listed_in_their_order() -> None:
    rows = {
        None: ["GPU-a", "GPU-b", "GPU-c"],
        "2,0": ["GPU-c", "GPU-a"],
        "GPU-b": ["GPU-b"],
        "": [],
        "1,9,0": ["GPU-b"],
    }
    for visible, names in rows.items():
        assert [one.uuid for one in list_gpus(make_nvml(), visible)] == names, visible


def test_free_memory_is_read_when_asked() -> None:
    gpu = list_gpus(make_nvml(), "1")[0]
    assert gpu.read_memory() == (10, 100)
    (silent,) = list_gpus(make_nvml(memory=True), "1")
    with pytest.raises(RuntimeError, match="memory is broken"):
        silent.read_memory()


def test_use_is_unknown_where_the_driver_does_not_tell() -> None:
    assert list_gpus(make_nvml(), "1")[0].read_use() == 31
    assert list_gpus(make_nvml(use=True), "1")[0].read_use() is None


def test_a_machine_whose_driver_does_not_answer_has_no_gpus() -> None:
    assert list_gpus(make_nvml(init=True), None) == []
