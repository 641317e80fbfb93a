"""Tests of the grammar of queries."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from epochal.errors import ConfigError
from epochal.records.query.parser import parse_names, parse_orders, parse_query
from epochal.records.query.tokens import Written
from epochal.records.query.tree import Among, Compare, Joined, Missing, Not, Query


def parse(text: str) -> Query:
    return parse_query(Written(text, "--where"))


def spell(query: Query) -> str:
    """The query with every parenthesis, so that its shape can be seen."""
    match query:
        case Compare(name, sign, value):
            return f"{name.shown} {sign} {value.text}"
        case Among(name, values, is_negated):
            word = "not in" if is_negated else "in"
            return f"{name.shown} {word} ({', '.join(value.text for value in values)})"
        case Missing(name):
            return f"{name.shown} is missing"
        case Not(inner):
            return f"not [{spell(inner)}]"
        case Joined(word, parts):
            return f"[{f' {word} '.join(map(spell, parts))}]"


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("optim.lr > 1e-4 and val/acc > 0.9", "[optim.lr > 1e-4 and val/acc > 0.9]"),
        ("a = 1 or b = 2 and c = 3", "[a = 1 or [b = 2 and c = 3]]"),
        ("(a = 1 or b = 2) and c = 3", "[[a = 1 or b = 2] and c = 3]"),
        ("not a = 1 and b = 2", "[not [a = 1] and b = 2]"),
        ("not (a = 1 and b = 2)", "not [[a = 1 and b = 2]]"),
        ("NOT a == 1 AND b != 2", "[not [a = 1] and b != 2]"),
        ("tag in (x, 'y z', 3)", "tag in (x, y z, 3)"),
        ("tag not in (x)", "tag not in (x)"),
        ("optim.lr is missing", "optim.lr is missing"),
        ("optim.lr is not missing", "not [optim.lr is missing]"),
        ("min(val/loss) < .2", "min(val/loss) < .2"),
        ("count('val/top 5') >= 3", "count(val/top 5) >= 3"),
        ("'val/top 5' > 0.5", "val/top 5 > 0.5"),
        ("tag ~ 'a b' or tag !~ c", "[tag ~ a b or tag !~ c]"),
        ("monitor = val/acc", "monitor = val/acc"),
        ("hooks.0.type = EarlyStop", "hooks.0.type = EarlyStop"),
    ],
)
def test_queries_have_the_shape_that_they_read_as(text: str, shape: str) -> None:
    assert spell(parse(text)) == shape


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", 0, "expected a name, got the end"),
        ("   ", 0, "expected a name, got the end"),
        ("optim.lr", 8, "expected a comparison after 'optim.lr', got the end"),
        ("optim.lr >", 10, "expected a value, got the end"),
        ("> 3", 0, "expected a name, got '>'"),
        ("0.9 < val/acc", 0, "the name comes first"),
        ("a = 1 < 2", 6, "compare twice"),
        ("a = 1 b = 2", 6, "expected and, or, or the end, got 'b'"),
        ("a = 1 b = 2", 6, "join two tests by and"),
        ("a = 1, b = 2", 5, "did you mean 'and'?"),
        ("a = wide net", 9, "a text with spaces stands in quotes: 'wide net'"),
        ("a < 2 h", 6, "write 2h"),
        ("a < 2 hours", 6, "a length is written 30s, 20min, 2h"),
        ("started > 2026-11-15 20:48", 21, "write 2026-11-15T20:48"),
        ("a between 1 and 2", 2, "compare twice"),
        ("a startswith x", 2, "did you mean '~'?"),
        ("a is nan", 5, '"a = nan"'),
        ("a is not nan", 9, '"a != nan"'),
        ("max(a, b) > 1", 5, "write max(a)"),
        ("a = 1 && b = 2", 6, "did you mean 'and'?"),
        ("a = 1 || b = 2", 6, "did you mean 'or'?"),
        ("a <> 1", 2, "did you mean '!='?"),
        ("a === 1", 2, "did you mean '='?"),
        ("a =~ x", 2, "did you mean '~'?"),
        ("a like x", 2, "did you mean '~'?"),
        ("a => 1", 2, "did you mean '>='?"),
        ("a is null", 5, "a is missing"),
        ("a is not 3", 9, "expected missing, got '3'"),
        ("a not b", 6, "expected in, got 'b'"),
        ("a in x", 5, 'write "a in (1, 2)"'),
        ("a in ()", 6, "expected a value, got ')'"),
        ("a in (1, 2", 5, "a parenthesis is opened and not closed"),
        ("(a = 1", 0, "a parenthesis is opened and not closed"),
        ("(a = 1 b", 7, "expected and, or, ')', got 'b'"),
        ("a = 1)", 5, "a parenthesis is closed that was not opened"),
        ("mean(val/acc) > 1", 0, "unknown function 'mean'"),
        ("mn(val/acc) > 1", 0, "did you mean 'min'?"),
        ("min() > 1", 4, "expected the name of a metric"),
        ("tag = wide*", 6, "~ finds a part of a text: ~ wide"),
        ("and = 1", 0, "put 'and' into quotes"),
        ("tag = and", 6, "put 'and' into quotes"),
        ("(" * 60 + "a = 1" + ")" * 60, 51, "nested more than 50 deep"),
        ("not " * 60 + "a = 1", 204, "nested more than 50 deep"),
        (" or ".join(["a = 1"] * 201), 1800, "more than 200 tests"),
        (f"a in ({', '.join('1' for _ in range(501))})", 5, "more than 500 values"),
    ],
)
def test_mistakes_are_pointed_at(text: str, place: int, message: str) -> None:
    with pytest.raises(ConfigError, match="--where: ") as caught:
        parse(text)
    shown = str(caught.value)
    assert message in shown
    if len(text) < 100:
        carets = shown.splitlines()[2]
        assert len(carets) - len(carets.lstrip()) == place + 4


ESCAPES = [
    "__import__('os').system('ls')",
    "__import__('os')",
    "eval('1')",
    "exec('import os')",
    "open('/etc/passwd').read()",
    "().__class__.__bases__[0].__subclasses__()",
    "''.__class__.__mro__[1]",
    "[].__class__",
    "[x for x in (1).__class__.__base__.__subclasses__()]",
    "(lambda: 1)()",
    "lambda: 0",
    "a if b else c",
    "{}.__class__",
    "{1: 2}",
    "f'{__import__(1)}'",
    "print('x')",
    "getattr(run, 'path')",
    "globals()['os']",
    "run.__init__.__globals__ > 1 or breakpoint()",
    "x := 1",
    "import os",
    "del runs",
    "a = 1; import os",
    "a = 1\nimport os",
    "a.b.c(1)",
    "a[0]() = 1",
    "1 + 1",
    "a + b > 2",
    "a ** 99999999 > 1",
    "9**9**9",
    "a = 1 -- comment",
    "a = 1 /* comment */",
    "a = 1 # comment",
    "1=1",
    "1 = 1 or 1 = 1",
    "' or 1=1 --",
    '" or 1=1 --',
    "a = 1; DROP TABLE runs",
    "a = 1); DROP TABLE runs; --",
    "a = 1 UNION SELECT * FROM runs",
    "a = (SELECT 1)",
    "EXISTS (SELECT 1)",
    "a IN (SELECT id FROM runs)",
    "load_extension('x') = 1",
    "readfile('/etc/passwd') = 1",
    "randomblob(1000000000) = 1",
    "a LIKE '%'",
    "a GLOB '*'",
    "a BETWEEN 1 AND 2",
    "CASE WHEN a THEN 1 END = 1",
    "a COLLATE NOCASE = 1",
    "CAST(a AS TEXT) = 1",
    "$(rm -rf .)",
    "`rm -rf .`",
    "${HOME} = 1",
    "{{7*7}}",
    "?1 = 1",
    ":name = @value or 1",
    "\x00",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_what_would_run_elsewhere_is_a_syntax_error_here(text: str) -> None:
    with pytest.raises(ConfigError, match="--where: "):
        parse(text)


WORDS = st.sampled_from(
    ["a", "optim.lr", "val/acc", "and", "or", "not", "in", "is", "missing", "min", "(", ")", ",",
     "=", "!=", "<", ">=", "~", "1", "1e-4", "2h", "'x y'", '"', "*", "nan", "__class__", ";"]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(WORDS, max_size=30).map(" ".join)))
@example("not " * 2000)
@example("(" * 9000)
@example("a=" + "1" * 9000)
@settings(max_examples=200, deadline=None)
def test_any_text_is_a_query_or_a_mistake(text: str) -> None:
    with suppress(ConfigError):
        assert spell(parse(text))


def test_names_of_columns() -> None:
    names = parse_names(Written("status,optim.*, max(val/acc) , 'val/top 5'", "--columns"))
    assert [name.shown for name in names] == ["status", "optim.*", "max(val/acc)", "val/top 5"]
    with pytest.raises(ConfigError, match=r"--columns: expected a name, got the end"):
        parse_names(Written("status,", "--columns"))
    with pytest.raises(ConfigError, match=r"--columns: expected a comma or the end, got 'tag'"):
        parse_names(Written("status tag", "--columns"))


def test_orders() -> None:
    orders = parse_orders(Written("tag, val/acc desc, -optim.lr, step ASC, -'a b'", "--sort"))
    assert [(one.name.shown, one.is_descending) for one in orders] == [
        ("tag", False),
        ("val/acc", True),
        ("optim.lr", True),
        ("step", False),
        ("a b", True),
    ]


def test_who_forgets_a_value_is_told_what_one_looks_like_and_nothing_of_quotes() -> None:
    with pytest.raises(ConfigError, match="write one such as 12") as caught:
        parse("optim.lr >")
    assert "quotes" not in str(caught.value)
