"""Tests of the grammar of queries."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from epochal.errors import ConfigError
from epochal.records.query.grammar import parse_names, parse_query, parse_sort_keys
from epochal.records.query.syntax import BoolOp, Compare, Missing, Not, Query, QueryText


def parse(text: str) -> Query:
    return parse_query(QueryText(text, "--where"))


def spell(query: Query) -> str:
    """The query with every parenthesis, so that its shape can be seen."""
    match query:
        case Compare(name, "in" | "not in" as operator, values):
            return f"{name.shown} {operator} ({', '.join(value.text for value in values)})"
        case Compare(name, operator, values):
            return f"{name.shown} {operator} {values[0].text}"
        case Missing(name):
            return f"{name.shown} is missing"
        case Not(inner):
            return f"not [{spell(inner)}]"
        case BoolOp(operator, parts):
            return f"[{f' {operator} '.join(map(spell, parts))}]"


SHAPES = [
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
    ("optim.lr>1e-4 and(a!=-3)", "[optim.lr > 1e-4 and a != -3]"),
    ("'not' = 'and'", "not = and"),
    (
        """tag = "it's (1)" or tag='a\\'b \\\\ \\x'""",
        "[tag = it's (1) or tag = a'b \\ x]",
    ),
]


def test_queries_are_parsed_with_the_usual_precedence() -> None:
    for text, shape in SHAPES:
        assert spell(parse(text)) == shape, text


MISTAKES = [
    ("", 0, "expected a name, got the end"),
    ("   ", 0, "expected a name, got the end"),
    ("optim.lr", 8, "expected a comparison after 'optim.lr', got the end"),
    ("baseline", 8, '"tag ~ baseline" finds it in tags'),
    ("optim.lr >", 10, "expected a value, got the end"),
    ("> 3", 0, "expected a name, got '>'"),
    ("0.9 < val/acc", 0, "the name comes first"),
    ("a = 1 < 2", 6, "compare twice"),
    ("a = 1 b = 2", 6, "expected and, or, or the end, got 'b'"),
    ("a = 1 b = 2", 6, "join two tests by and"),
    ("a = 1, b = 2", 5, "did you mean 'and'?"),
    ("a = wide net", 9, "put a text with spaces into quotes: 'wide net'"),
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
    ("a in (1, 2", 5, "a parenthesis was opened but not closed"),
    ("(a = 1", 0, "a parenthesis was opened but not closed"),
    ("(a = 1 b", 7, "expected and, or, ')', got 'b'"),
    ("a = 1)", 5, "a parenthesis was closed but not opened"),
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
    ("'not' 'x", 6, "a quote was opened but not closed"),
    ('tag = "abc\\"', 6, "a quote was opened but not closed"),
    ("tag = a;b", 7, "';' has no meaning here"),
    ("tag = {x}", 6, "'{' has no meaning here"),
    ("tag = \x00", 6, "has no meaning here"),
    ("tag = \ud800", 6, "has no meaning here"),
    ('tag = "\ud800"', 6, "a text cannot hold this character"),
    ("tag = 'a\x00b'", 6, "a text cannot hold this character"),
    ("  lr > 1 ; x", 7, "';' has no meaning here"),
    ("é = 1 ü", 6, "a length is written"),
    ("x" * 10_001, 0, "longer than 10000 characters"),
]


def test_errors_point_at_the_mistake() -> None:
    for text, place, message in MISTAKES:
        with pytest.raises(ConfigError, match="--where: ") as caught:
            parse(text)
        shown = str(caught.value)
        assert message in shown, text
        if len(text) < 100:
            carets = shown.splitlines()[2]
            assert len(carets) - len(carets.lstrip()) == place + 4, text


def test_errors_show_one_line_around_the_mistake() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("a = 1\nand\t{")
    assert str(caught.value).splitlines() == [
        "--where: '{' has no meaning here",
        "    a = 1 and {",
        "              ^",
        "  put a text with such characters into quotes",
    ]
    with pytest.raises(ConfigError) as caught:
        parse("a = 1 and " * 50 + "{" + " and b = 2" * 50)
    _, line, carets, _ = str(caught.value).splitlines()
    assert len(line) <= 104
    assert line[carets.index("^")] == "{"


def test_missing_value_is_explained_without_quotes() -> None:
    with pytest.raises(ConfigError, match="write one such as 12") as caught:
        parse("optim.lr >")
    assert "quotes" not in str(caught.value)


CODE = [
    "__import__('os').system('ls')", "__import__('os')", "eval('1')", "exec('import os')",
    "open('/etc/passwd').read()", "().__class__.__bases__[0].__subclasses__()",
    "''.__class__.__mro__[1]", "[].__class__",
    "[x for x in (1).__class__.__base__.__subclasses__()]", "(lambda: 1)()", "lambda: 0",
    "a if b else c", "{}.__class__", "{1: 2}", "f'{__import__(1)}'", "print('x')",
    "getattr(run, 'path')", "globals()['os']", "run.__init__.__globals__ > 1 or breakpoint()",
    "x := 1", "import os", "del runs", "a = 1; import os", "a = 1\nimport os", "a.b.c(1)",
    "a[0]() = 1", "1 + 1", "a + b > 2", "a ** 99999999 > 1", "9**9**9", "a = 1 -- comment",
    "a = 1 /* comment */", "a = 1 # comment", "1=1", "1 = 1 or 1 = 1", "' or 1=1 --", '" or 1=1 --',
    "a = 1; DROP TABLE runs", "a = 1); DROP TABLE runs; --", "a = 1 UNION SELECT * FROM runs",
    "a = (SELECT 1)", "EXISTS (SELECT 1)", "a IN (SELECT id FROM runs)", "load_extension('x') = 1",
    "readfile('/etc/passwd') = 1", "randomblob(1000000000) = 1", "a LIKE '%'", "a GLOB '*'",
    "a BETWEEN 1 AND 2", "CASE WHEN a THEN 1 END = 1", "a COLLATE NOCASE = 1",
    "CAST(a AS TEXT) = 1", "$(rm -rf .)", "`rm -rf .`", "${HOME} = 1", "{{7*7}}", "?1 = 1",
    ":name = @value or 1", "\x00",
]  # fmt: skip


def test_code_and_sql_are_syntax_errors() -> None:
    for text in CODE:
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
def test_any_text_is_a_query_or_a_config_error(text: str) -> None:
    with suppress(ConfigError):
        assert spell(parse(text))


def test_names_of_columns() -> None:
    names = parse_names(QueryText("status,optim.*, max(val/acc) , 'val/top 5'", "--columns"))
    assert [name.shown for name in names] == ["status", "optim.*", "max(val/acc)", "val/top 5"]
    with pytest.raises(ConfigError, match=r"--columns: expected a name, got the end"):
        parse_names(QueryText("status,", "--columns"))
    with pytest.raises(ConfigError, match=r"--columns: expected a comma or the end, got 'tag'"):
        parse_names(QueryText("status tag", "--columns"))


def test_sort_keys() -> None:
    keys = parse_sort_keys(QueryText("tag, val/acc desc, -optim.lr, step ASC, -'a b'", "--sort"))
    assert [(key.name.shown, key.is_descending) for key in keys] == [
        ("tag", False),
        ("val/acc", True),
        ("optim.lr", True),
        ("step", False),
        ("a b", True),
    ]
