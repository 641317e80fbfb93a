"""Builds experiments in other processes, one at a time, for the checks of the web page."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

from epochal.errors import Problem
from epochal.records.secrets import redact
from epochal.web.site.launches import BuildFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from epochal.launch.pool.backlog import WaitingJob

WAIT_SECONDS = 7.0
"""How long one request waits for a result; an answer may take ten seconds."""

MAX_BUILD_SECONDS = 120
_MAX_KEPT = 20
_MAX_OUTPUT = 1 << 20
_NOTE = "memory of weights, gradients and optimizer, without activations"


@final
class BuildChecks:
    """Builds in progress; equal requests share one build."""

    def __init__(self, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self._wait_seconds = wait_seconds
        self._builder = ThreadPoolExecutor(1, "epochal-build")
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Future[BuildFacts]] = OrderedDict()

    def ask(self, question: str, build: Callable[[], BuildFacts]) -> BuildFacts | None:
        """The result; None while it is being built: the caller asks again later."""
        with self._lock:
            found = self._known.get(question)
            if found is None:
                running = [one for one in self._known.values() if not one.done()]
                if len(running) >= _MAX_KEPT:
                    return BuildFacts(note="too many checks at once; try again in a minute")
                found = self._known[question] = self._builder.submit(build)
                while len(self._known) > _MAX_KEPT:
                    self._known.popitem(last=False)[1].cancel()
        try:
            facts = found.result(self._wait_seconds)
        except FutureTimeoutError:
            return None
        with self._lock:  # the files may change until it is asked again
            self._known.pop(question, None)
        return facts


def build_job(waiting: WaitingJob) -> BuildFacts:
    """Build a job in a process without GPUs that has a time limit."""
    job = waiting.job
    command = [job.python, "-P", "-m", "epochal", "run-job", str(waiting.file), "--plan"]
    environment = {**os.environ, **job.environment, "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [*command, "--device", "cpu"],
            cwd=job.cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code = child.wait(MAX_BUILD_SECONDS)
        except subprocess.TimeoutExpired:
            return BuildFacts(note=f"building takes longer than {MAX_BUILD_SECONDS} s")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        texts = []
        for file in (output, errors):
            file.seek(max(0, file.seek(0, 2) - _MAX_OUTPUT))
            texts.append(file.read().decode("utf-8", "replace"))
    return read_needs(code, *texts)


def read_needs(code: int, text: str, errors: str) -> BuildFacts:
    """The result that a build process printed, or its last error if it failed."""
    start = text.find("{")  # the code of the user may print, too
    try:
        found: Any = json.loads(text[start:]) if start >= 0 else {}
    except ValueError:
        found = {}
    known = found if isinstance(found, dict) else {}
    problems = [Problem(key, what, hint=hint) for key, what, hint in known.get("problems", ())]
    if code and not problems:
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        why = redact(lines[-1][:300]) if lines else f"the process ended with code {code}"
        problems = [Problem("build", f"cannot be built: {why}")]
    parameters = known.get("parameters")
    note = "" if code else _NOTE if parameters is not None else "a layer has no size yet"
    return BuildFacts(
        parameters=parameters,
        memory_bytes=known.get("memory_bytes"),
        note=note,
        problems=tuple(problems),
    )
