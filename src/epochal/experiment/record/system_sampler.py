"""Samples the use of CPU, memory, disk and GPUs in a thread while a run is active."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import psutil

from epochal import durable
from epochal.engine.tracking.mirror import fork_safe_import
from epochal.errors import LeaseLostError
from epochal.launch.pool.gpus import find_visible_gpus
from epochal.records.metrics.system_figures import SYSTEM_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from epochal.engine.interfaces.run import Run

END_SECONDS = 5.0
"""How long a run waits at its end for the last sample; a driver may not answer."""

_NVIDIA_DEVICES = ("/dev/nvidiactl", "/dev/dxg")  # on Linux, and in WSL

logger = logging.getLogger(__name__)

Sample = dict[str, float]


@contextmanager
def sampling_system(run: Run) -> Iterator[None]:
    """Record system figures at the start of a block, periodically, and at its end."""
    folder, every, is_over = run.dir, run.options.log.system_every, threading.Event()
    if folder is None or every.is_never:
        yield
        return

    def work() -> None:
        try:
            sampler = SystemSampler(folder)

            def sample() -> Sample:
                run.writer.require_lease()
                return {"step": run.step, **sampler.sample()}

            path = folder / SYSTEM_FILE
            write_samples(path, sample, wait=lambda: is_over.wait(every.amount))
        except LeaseLostError:  # the run itself reports it
            return
        except Exception as error:  # measuring must not affect the run
            logger.warning("the record has no further system figures: %s", error)

    thread = threading.Thread(target=work, name="epochal-system", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(END_SECONDS)


def write_samples(path: Path, sample: Callable[[], Sample], *, wait: Callable[[], bool]) -> None:
    """Append a sample, then one after each wait; the last when ``wait`` returns True."""
    with durable.open_lines(path) as lines:
        is_over = False
        while True:
            lines.append(durable.encode_line({"time": round(time.time(), 3), **sample()}))
            if is_over:
                return
            is_over = wait()


@final
class SystemSampler:
    """Measures the machine, this process with its children, and the visible NVIDIA GPUs.

    Rates are means since the previous sample; the first sample has none. What cannot be measured
    is left out.

    Args:
        folder: The free space of its file system is measured.
        now: Returns seconds of a monotonic clock.
    """

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._now = folder, now
        self._process = psutil.Process()
        self._gpus = GpuSampler(import_nvml())
        self._before: tuple[float, dict[str, float]] | None = None
        self._cpu_seconds: dict[psutil.Process, float] = {}

    def sample(self) -> Sample:
        """The current figures, by name."""
        found, totals = self._measure_machine(), self._count_bytes()
        cpu_seconds, found["system/process/memory"] = self._measure_processes()
        now = self._now()
        if self._before is None:
            del found["system/cpu"]  # it is the mean since the previous call
        else:
            then, before = self._before
            seconds = max(now - then, 1e-3)
            found["system/process/cores"] = round(cpu_seconds / seconds, 3)
            for name in totals.keys() & before.keys():
                found[name] = round((totals[name] - before[name]) / seconds)
        self._before = now, totals
        return found | self._gpus.sample()

    def _measure_machine(self) -> Sample:
        memory = psutil.virtual_memory()
        found = {
            "system/cpu": psutil.cpu_percent(),
            "system/memory": memory.total - memory.available,
        }
        with suppress(OSError):
            found["system/disk/free"] = psutil.disk_usage(str(self._folder)).free
        return found

    def _count_bytes(self) -> Sample:
        """The bytes that all disks have read and written."""
        try:
            # Without `nowrap`, which holds a lock: a process forked then could never get it.
            total = psutil.disk_io_counters(nowrap=False)
        except (OSError, RuntimeError):  # a container may hide the disks
            total = None
        if total is None:
            return {}
        return {"system/disk/read": total.read_bytes, "system/disk/write": total.write_bytes}

    def _measure_processes(self) -> tuple[float, int]:
        """CPU seconds of this process and its children since the last call, and their memory."""
        used, memory, seconds = 0.0, 0, {}
        for process in (self._process, *find_children(self._process)):
            with suppress(psutil.Error):  # it has ended
                times, resident = process.cpu_times(), process.memory_info().rss
                seconds[process] = times.user + times.system
                used += seconds[process] - self._cpu_seconds.get(process, 0.0)
                memory += resident
        self._cpu_seconds = seconds
        return used, memory


def find_children(process: psutil.Process, proc: Path = Path("/proc")) -> list[psutil.Process]:
    """All processes below ``process``; Linux lists them, elsewhere every process is looked at."""
    children, parents = [], [process.pid]
    try:
        while parents:
            tasks = (proc / str(parents.pop()) / "task").iterdir()
            found = [int(pid) for one in tasks for pid in (one / "children").read_text().split()]
            parents += found
            children += [psutil.Process(pid) for pid in found]
    except (OSError, psutil.Error):  # not Linux, or a process or thread ended in between
        return process.children(recursive=True)
    return children


@final
class GpuSampler:
    """Measures the NVIDIA GPUs that CUDA shows to this process, numbered as CUDA does.

    Without GPU or driver it measures nothing.

    Args:
        nvml: The module ``pynvml``, or None.
    """

    def __init__(self, nvml: Any) -> None:  # noqa: ANN401 - a module
        self._gpus: list[Any] = []  # handles
        self._nvml: Any = nvml
        if nvml is None:
            return
        with suppress(nvml.NVMLError):
            nvml.nvmlInit()
            found = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
            names = [nvml.nvmlDeviceGetUUID(gpu) for gpu in found]
            visible = find_visible_gpus(names, os.environ.get("CUDA_VISIBLE_DEVICES"))
            self._gpus = [found[index] for index in visible]

    def sample(self) -> Sample:
        """The current figures of each GPU, by name."""
        nvml, found = self._nvml, Sample()
        measures: dict[str, Callable[[Any], float]] = {
            "use": lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
            "memory": lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
            "power": lambda gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
            "temperature": lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, 0),
        }
        for number, gpu in enumerate(self._gpus):
            for name, measure in measures.items():
                # Not every GPU measures everything, nor does every version have all functions.
                with suppress(nvml.NVMLError, AttributeError):
                    found[f"system/gpu{number}/{name}"] = measure(gpu)
        return found


def import_nvml() -> Any:  # noqa: ANN401 - a module
    """The module ``pynvml``; None if there is no NVIDIA driver, or it is not installed."""
    if not any(Path(device).exists() for device in _NVIDIA_DEVICES):
        return None
    try:
        with fork_safe_import():
            import pynvml
    except ImportError:
        logger.info("GPU use is not recorded: `pip install 'epochal[nvml]'`")
        return None
    return pynvml
