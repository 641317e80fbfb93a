"""Tests of the store of a run."""

from __future__ import annotations

import pickle

import pytest

from epochal.engine.interfaces.shared_store import MissingKeyError, Store
from epochal.errors import TaskError


def test_set_refuses_to_overwrite_a_name_defect_16() -> None:
    store = Store()
    store.set("factor", 1)
    with pytest.raises(TaskError, match=r"store: 'factor' is already set\n  overwrite it with"):
        store.set("factor", 2)
    assert store.get("factor") == 1


def test_try_set_returns_whether_it_set_the_name() -> None:
    store = Store()
    assert store.try_set("factor", 1)
    assert not store.try_set("factor", 2)
    assert store.get("factor") == 1


def test_force_set_overwrites() -> None:
    store = Store()
    store.set("factor", 1)
    store.force_set("factor", 2)
    assert store.get("factor") == 2


def test_a_missing_name_suggests_the_closest_one() -> None:
    store = Store()
    store.set("factor", 1)
    with pytest.raises(MissingKeyError, match=r"nothing is named 'factr'\n  did you mean 'factor'"):
        store.get("factr")
    with pytest.raises(KeyError):
        store.get("other")


def test_try_get_returns_the_default() -> None:
    assert Store().try_get("factor") is None
    assert Store().try_get("factor", 3) == 3


def test_pop_removes() -> None:
    store = Store()
    store.set("factor", 1)
    assert store.pop("factor") == 1
    assert "factor" not in store
    with pytest.raises(MissingKeyError):
        store.pop("factor")


def test_names_of_a_scope_end_with_it() -> None:
    store = Store()
    store.set("a", 1)
    with store.scope():
        store.set("a", 2)
        store.set("b", 3)
        assert (store.get("a"), store.get("b")) == (2, 3)
        assert store.pop("a") == 2
        assert store.get("a") == 1
    assert store.get("a") == 1
    assert "b" not in store


def test_a_lookup_skips_outer_scopes() -> None:
    store = Store()
    store.set("everywhere", 0)
    with store.scope():
        store.set("between", 1)
        with store.scope():
            assert store.get("everywhere") == 0
            assert "between" not in store


def test_a_scope_ends_with_an_exception_too() -> None:
    store = Store()
    with pytest.raises(ZeroDivisionError), store.scope():
        store.set("a", 1 / 0)
    assert "a" not in store


def test_a_block_can_leave_the_store_untouched() -> None:
    store = Store()
    store.set("a", 1)
    with store.untouched():
        store.force_set("a", 2)
        store.set("b", 3)
    assert store.get("a") == 1
    assert "b" not in store


def test_a_store_cannot_be_pickled() -> None:
    with pytest.raises(TaskError, match="cannot be sent to another process"):
        pickle.dumps(Store())
