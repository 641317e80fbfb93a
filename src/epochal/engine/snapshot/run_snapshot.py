"""The parts of a run as they were: kept before it is carried out, and put back afterwards."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, final

from epochal.engine.feed.iterable_loader import find_stateful_owner
from epochal.engine.snapshot.object_snapshot import ObjectSnapshot, set_generator_state
from epochal.engine.snapshot.run_objects import read_generator_state
from epochal.engine.snapshot.tensor_snapshot import TensorSnapshot, find_state_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from epochal.engine.run import Run


@final
class RunSnapshot:
    """What training changes in parts that others may go on using.

    Args:
        run: Assembled, and not started yet.
    """

    def __init__(self, run: Run) -> None:
        self._plain = ObjectSnapshot(run)
        self._tensors = TensorSnapshot(find_state_tensors(run), run.device)
        self._others = [*_keep_gradients(run), *_keep_optimizer(run), *_keep_objects(run)]

    def put_back(self) -> None:
        """Bring everything into the state it had; also when the run is over and released."""
        for put_back in self._others:
            put_back()
        self._plain.restore()
        self._tensors.restore()  # and with them the generators, which come last


def _keep_gradients(run: Run) -> Iterator[Callable[[], None]]:
    kept = [(one, one.grad, one.requires_grad) for one in run.model.parameters()]

    def put_back() -> None:
        for parameter, gradient, is_trained in kept:
            parameter.grad = gradient
            parameter.requires_grad_(is_trained)

    yield put_back


def _keep_optimizer(run: Run) -> Iterator[Callable[[], None]]:
    """Groups and state as they are; the tensors in them are kept with all others."""
    if run.optimizer is None:
        return
    state: dict[Any, Any] = run.optimizer.state  # torch says tensors, but takes other keys, too
    groups = run.optimizer.param_groups
    kept_groups = [(group, dict(group)) for group in groups]
    kept_state = {key: _shallow(value) for key, value in state.items()}

    def put_back() -> None:
        groups[:] = [group for group, _ in kept_groups]
        for group, options in kept_groups:
            group.clear()
            group.update(options)
        state.clear()
        state.update(kept_state)

    yield put_back


def _shallow(value: Any) -> Any:  # noqa: ANN401 - whatever an optimizer keeps
    return dict(value) if isinstance(value, dict) else value


def _keep_objects(run: Run) -> Iterator[Callable[[], None]]:
    """Hooks, updater and data, as far as they have a state of their own."""
    loader: Any = run.feed.loader
    owners = [*run.events.hooks, run.updater, find_stateful_owner(loader)]
    for owner in owners:
        if hasattr(owner, "state_dict") and hasattr(owner, "load_state_dict"):
            yield _keep_state(owner)
    for owner in (loader, getattr(loader, "sampler", None)):
        generator = getattr(owner, "generator", None)
        state = read_generator_state(generator)
        if state is not None:
            yield _keep_generator(generator, state)


def _keep_state(owner: Any) -> Callable[[], None]:  # noqa: ANN401 - of anybody
    kept = copy.deepcopy(owner.state_dict())
    return lambda: owner.load_state_dict(kept)


def _keep_generator(generator: object, state: object) -> Callable[[], None]:
    return lambda: set_generator_state(generator, state)
