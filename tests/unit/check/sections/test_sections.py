from __future__ import annotations

import inspect

from epochal.check import SECTIONS
from epochal.check.sections.sections import read_table, section_signature, split_names
from epochal.registry.module_finder import ModuleFinder

LIBRARY = ModuleFinder()


def test_every_section_has_a_documented_dataclass() -> None:
    for name in [name for name, part in SECTIONS.items() if part.options]:
        found = section_signature(SECTIONS[name], LIBRARY)
        assert not found.open, name
        assert found.parameters, name
        assert all(item.doc for item in found.parameters), name
        assert not any(item.is_required for item in found.parameters), name


def test_keys_read_from_source_equal_the_real_fields() -> None:
    for name in ("train", "engine", "log", "hooks", "optim"):
        from epochal.engine.interfaces import options

        real = getattr(options, SECTIONS[name].options.partition(":")[2])
        fields = inspect.signature(real).parameters
        found = section_signature(SECTIONS[name], LIBRARY)
        assert [item.argument for item in found.parameters] == list(fields), name


def test_a_trailing_underscore_is_not_part_of_the_key() -> None:
    assert section_signature(SECTIONS["train"], LIBRARY).get("for") is not None


def test_every_section_has_documentation() -> None:
    assert all(section.doc.endswith(".") for section in SECTIONS.values())


def test_splits_and_their_aliases_come_from_the_engine() -> None:
    from epochal.engine.interfaces.splits import SPLIT_ALIASES, SPLITS

    assert split_names(LIBRARY) == {name: name for name in SPLITS} | SPLIT_ALIASES


def test_the_tables_of_methods_and_events_are_those_of_the_engine() -> None:
    from epochal.engine.interfaces import hook, task

    assert set(read_table("epochal.engine.interfaces.hook:EVENTS", LIBRARY)) == set(hook.EVENTS)
    assert read_table("epochal.engine.interfaces.hook:ALIASES", LIBRARY) == hook.ALIASES
    assert (
        tuple(read_table("epochal.engine.interfaces.task:OPTIONAL_METHODS", LIBRARY))
        == task.OPTIONAL_METHODS
    )


def test_a_missing_table_is_empty() -> None:
    assert read_table("epochal.nowhere:X", LIBRARY) == {}
    assert read_table("epochal.errors:Problem", LIBRARY) == {}
