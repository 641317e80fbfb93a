from __future__ import annotations

import pytest

from epochal.config.source_file import SourceText
from epochal.config.toml_places import scan_toml
from epochal.errors import ConfigError

DOCUMENT = '''\
# a comment
tag = "x"          # another
"quoted.key" = 1
'single' = 'a # b'
"es\\tcaped" = 2
multi = """
two [lines] = "x"
"""
raw = \'\'\'a\'\'b\'\'\'
when = 2020-01-01 10:00:00+01:00
[model]
type = "M"
a.b = [1, [2, 3],  # inner
  {x = 4, y.z = 5},
]
[model.sub]
inf = -inf
[[hooks]]
type = "A"
[hooks.options]
k = 1
[[hooks.inner]]
v = 1
[[hooks.inner]]
v = 2
[[hooks]]
[[hooks.inner]]
v = 3
'''


def test_every_value_has_its_place() -> None:
    for path, place, written in (
        (("tag",), "2:7", '"x"'),
        (("quoted.key",), "3:16", "1"),
        (("single",), "4:12", "'a # b'"),
        (("es\tcaped",), "5:15", "2"),
        (("multi",), "6:9", '"""\ntwo [lines] = "x"\n"""'),
        (("raw",), "9:7", "'''a''b'''"),
        (("when",), "10:8", "2020-01-01 10:00:00+01:00"),
        (("model",), "11:2", ""),
        (("model", "a"), "13:1", ""),
        (("model", "a", "b", 0), "13:8", "1"),
        (("model", "a", "b", 1, 1), "13:15", "3"),
        (("model", "a", "b", 2), "14:3", "{x = 4, y.z = 5}"),
        (("model", "a", "b", 2, "y", "z"), "14:17", "5"),
        (("model", "sub", "inf"), "17:7", "-inf"),
        (("hooks", 0), "18:3", ""),
        (("hooks", 0, "options", "k"), "21:5", "1"),
        (("hooks", 0, "inner", 1, "v"), "25:5", "2"),
        (("hooks", 1, "inner", 0, "v"), "28:5", "3"),
    ):
        spot = scan_toml(SourceText("x", DOCUMENT)).spots[path]
        assert str(spot.place) == f"x:{place}", path
        assert spot.written == written, path


def test_keys_have_places_of_their_own() -> None:
    spot = scan_toml(SourceText("x", DOCUMENT)).spots["model", "a", "b"]
    assert (str(spot.key_place), spot.key_place.width) == ("x:13:1", 3)


def test_the_whole_document_is_understood() -> None:
    found = scan_toml(SourceText("x", DOCUMENT))
    assert found.reached == len(DOCUMENT)
    assert found.duplicate is None


def test_the_scan_ends_where_the_text_is_not_toml() -> None:
    for text, reached in (
        ("a = 1\nb 2", 8),
        ("a = 'x", 4),
        ("a = [1 2]", 7),
        ("a = {b = 1 c = 2}", 11),
        ("[a", 2),
        ("a = ", 4),
    ):
        assert scan_toml(SourceText("x", text)).reached == reached


def test_a_key_that_is_set_twice_is_noticed() -> None:
    for text, path in (
        ("a = 1\na = 2", ("a",)),
        ("[a]\n[a]", ("a",)),
        ("a.b = 1\na.b.c = 2", ("a", "b")),
        ("x = {a = 1, a = 2}", ("x", "a")),
    ):
        found = scan_toml(SourceText("x", text))
        assert found.duplicate[0] == path, text


def test_tables_below_each_other_are_no_duplicates() -> None:
    text = "[a.b]\nx = 1\n[a]\ny = 2\n[a.c]\n[[d]]\n[d.e]\n[[d]]\n[d.e]\n"
    assert scan_toml(SourceText("x", text)).duplicate is None


def test_too_many_levels_are_refused() -> None:
    for text in (
        "a = " + "[" * 100_000,
        ".".join(["a"] * 100_000) + " = 1",
        "[" + "a." * 100_000 + "a]",
        "a = " + "{a=" * 100,
    ):
        with pytest.raises(ConfigError, match="more than 64 levels deep"):
            scan_toml(SourceText("x", text))


def test_too_many_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than 10,000 values"):
        scan_toml(SourceText("x", "a = [" + "1," * 20_000 + "]"))
