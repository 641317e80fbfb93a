from __future__ import annotations

import pytest

from epochal.errors import ConfigError
from epochal.registry import REGISTERED, register


def test_a_class_is_registered_under_its_own_name_or_another() -> None:
    @register("model")
    class Tiny:
        pass

    @register("model", "small")
    def make() -> None: ...

    assert REGISTERED["model"]["Tiny"].factory.object is Tiny
    assert REGISTERED["model"]["small"].factory.object is make
    assert REGISTERED["model"]["small"].factory.line > 0


def test_a_taken_name_is_refused_unless_it_is_to_be_replaced() -> None:
    @register("model", "tiny")
    class First:
        pass

    with pytest.raises(ConfigError, match=r"cannot have this name, which .*First' already has"):

        @register("model", "tiny")
        class Second:
            pass

    @register("model", "tiny", override=True)
    class Third:
        pass

    assert REGISTERED["model"]["tiny"].factory.object is Third


def test_a_built_in_name_is_taken_too() -> None:
    with pytest.raises(ConfigError, match=r"hook EarlyStopping: .*epochal\.hooks\.early_stopping"):

        @register("hook")
        class EarlyStopping:
            pass


def test_the_same_name_may_stand_in_two_kinds() -> None:
    register("model", "thing")(dict)
    register("data", "thing")(list)
    assert REGISTERED["data"]["thing"].factory.object is list


def test_a_module_may_be_loaded_twice() -> None:
    for _ in range(2):

        @register("model")
        class Again:
            pass


def test_an_unknown_kind_suggests_the_closest() -> None:
    with pytest.raises(ConfigError, match="unknown kind 'modle'\n  did you mean 'model'"):
        register("modle")
