"""Tests of epochal.cli.pages.diff."""

from __future__ import annotations

from epochal.cli.pages.diff import DiffView, describe_code, describe_values, format_config_value
from epochal.records.compare.code import CodeComparison, FileDifference, FileVersion
from epochal.records.compare.difference import Difference, RunValue, SectionComparison

PAIR = DiffView(names=("A", "B"), words=("a", "my run"))
THREE = DiffView(names=("A", "B", "C"), words=("a", "b", "c"))
ALL = DiffView(names=("A", "B"), words=("a", "b"), has_all=True)
NO_GIT = SectionComparison((), 0)
GIT = SectionComparison(
    (
        Difference("commit", (RunValue("0123456789abcdef"), RunValue("fedcba9876543210"))),
        Difference("dirty", (RunValue(False), RunValue(True))),
    ),
    0,
)


def test_two_runs_show_values_and_where_they_were_set() -> None:
    facts = SectionComparison(
        (Difference("optim.lr", (RunValue(0.1, "a.yaml:3:5"), RunValue(None, "command line"))),), 7
    )
    assert list(describe_values("params", facts, PAIR)) == [
        "parameters: 1 parameter differs, 7 are the same",
        "  parameter  A    B     A set by    B set by",
        "  optim.lr   0.1  null  a.yaml:3:5  command line",
    ]


def test_three_runs_are_a_table_of_values() -> None:
    facts = SectionComparison(
        (Difference("optim.lr", (RunValue(0.1, "a"), None, RunValue(True, "b"))),), 0
    )
    assert list(describe_values("params", facts, THREE))[1:] == [
        "  parameter  A    B  C",
        "  optim.lr   0.1  -  true",
    ]


def test_defaults_of_some_are_counted_and_shown_on_request() -> None:
    facts = SectionComparison(
        (Difference("optim.eps", (RunValue(0.1, "default", is_default=True), None)),), 2
    )
    assert list(describe_values("params", facts, PAIR)) == [
        "parameters: nothing differs, 2 are the same",
        "  1 default that only some runs have: `epochal diff a 'my run' --only params --all`",
    ]
    assert "optim.eps" in list(describe_values("params", facts, ALL))[-1]


def test_many_differences_are_cut_and_counted() -> None:
    many = tuple(Difference(f"p{i}", (RunValue("1"), RunValue("2"))) for i in range(20))
    lines = list(describe_values("packages", SectionComparison(many, 0), PAIR))
    assert len(lines) == 1 + 1 + 16 + 1
    assert lines[-1] == "  4 more packages: `epochal diff a 'my run' --only packages --all`"
    assert len(list(describe_values("packages", SectionComparison(many, 0), ALL))) == 22


def test_long_values_are_cut_unless_all_is_requested() -> None:
    facts = SectionComparison((Difference("x", (RunValue("y" * 50), RunValue(""))),), 0)
    assert f"{'y' * 35}…" in list(describe_values("data", facts, PAIR))[-1]
    assert "y" * 50 in list(describe_values("data", facts, ALL))[-1]


def test_equal_section_is_one_line() -> None:
    [line] = describe_values("packages", SectionComparison((), 57), PAIR)
    assert line == "packages: nothing differs, 57 are the same"
    assert list(describe_values("seed", SectionComparison((), 1), PAIR)) == ["seed: the same"]


def test_seeds_that_differ_are_shown() -> None:
    facts = SectionComparison(
        (Difference("seed", (RunValue(1, "command line"), RunValue(2, "a.yaml:1:1"))),), 0
    )
    assert list(describe_values("seed", facts, PAIR)) == [
        "seed: not the same",
        "  seed  A  B  A set by      B set by",
        "  seed  1  2  command line  a.yaml:1:1",
    ]


def test_section_that_was_not_recorded_is_unknown() -> None:
    [line] = describe_values("data", SectionComparison((), 0, (1,)), PAIR)
    assert line == "data: unknown, B recorded none"
    [line] = describe_values("data", SectionComparison((), 3, (0,)), THREE)
    assert line == "data: nothing differs, 3 are the same; A recorded none"


def test_values_look_as_in_a_config() -> None:
    for value, text in [
        (None, "null"),
        (True, "true"),
        (1e-8, "1e-08"),
        ("", '""'),
        ("a b", "a b"),
        ([], "[]"),
    ]:
        assert format_config_value(value) == text, value


CHANGED = FileDifference(
    path="task.py",
    versions=(FileVersion("aa", 3), FileVersion("bb", 4)),
    added=1,
    removed=1,
    lines=("--- A/task.py", "+++ B/task.py", "@@ -1 +1 @@", "-x", "+\x1b[31my"),
)


def test_changed_file_is_listed_with_its_lines() -> None:
    code = CodeComparison(files=(CHANGED,), num_same=2, git=GIT)
    assert list(describe_code(code, PAIR)) == [
        "code: 1 file differs, 2 are the same",
        "  git commit: A 012345678, B fedcba987",
        "  git dirty: A false, B true",
        "  file              lines",
        "  task.py  changed  +1 -1",
        "  --- A/task.py",
        "  +++ B/task.py",
        "  @@ -1 +1 @@",
        "  -x",
        "  +\\x1b[31my",
    ]


def test_lines_are_coloured_on_a_terminal() -> None:
    view = DiffView(names=("A", "B"), words=(), has_colours=True)
    lines = list(describe_code(CodeComparison(files=(CHANGED,), git=NO_GIT), view))
    assert lines[-2:] == ["\x1b[31m  -x\x1b[0m", "\x1b[32m  +\\x1b[31my\x1b[0m"]
    assert lines[-4] == "\x1b[1m  +++ B/task.py\x1b[0m"


def test_long_diffs_are_cut_and_counted() -> None:
    long = FileDifference(path="a", versions=(None, FileVersion("b")), lines=("+x",) * 90, added=90)
    lines = list(describe_code(CodeComparison(files=(long,), git=NO_GIT), PAIR))
    assert lines[-1] == "  30 more lines: `epochal diff a 'my run' --only code --all`"


def test_new_removed_and_binary_files_are_listed() -> None:
    files = (
        FileDifference(path="new.py", versions=(None, FileVersion("bb", 4)), added=2),
        FileDifference(path="old.py", versions=(FileVersion("bb", 4), None), removed=2),
        FileDifference(
            path="w.bin", versions=(FileVersion("aa", 1000), FileVersion("bb", 7)), note="binary"
        ),
    )
    assert list(describe_code(CodeComparison(files=files, git=NO_GIT), PAIR))[2:] == [
        "  new.py  only in B  +2 -0",
        "  old.py  only in A  +0 -2",
        "  w.bin   changed    binary: 1,000 bytes, aa -> 7 bytes, bb",
    ]


def test_three_runs_show_digests() -> None:
    file = FileDifference(path="a.py", versions=(FileVersion("aa"), None, FileVersion("bb")))
    lines = list(describe_code(CodeComparison(files=(file,), git=NO_GIT), THREE))
    assert lines[1:] == ["  file  A   B  C", "  a.py  aa  -  bb"]


def test_equal_and_unknown_code_is_one_line() -> None:
    [line] = describe_code(CodeComparison(num_same=4, git=GIT), PAIR)
    assert line == "code: nothing differs, 4 are the same"
    first, *git = describe_code(CodeComparison(source="nothing", git=GIT), PAIR)
    assert first == "code: unknown, one of the runs recorded none"
    assert len(git) == 2
    [line] = describe_code(CodeComparison(source="imports", num_same=1, git=NO_GIT), PAIR)
    assert line.endswith("1 is the same; only digests of imported files are known")


def test_other_version_of_epochal_is_shown() -> None:
    lines = list(describe_code(CodeComparison(epochal=("1 aa", "1 bb"), git=NO_GIT), PAIR))
    assert lines == [
        "code: only Epochal itself differs, 0 are the same",
        "  Epochal itself: A 1 aa, B 1 bb",
    ]
    files = tuple(f"epochal/{name}.py" for name in "abcde")
    code = CodeComparison(epochal=("1 aa", "1 bb"), epochal_files=files, git=NO_GIT)
    assert list(describe_code(code, PAIR))[1].endswith(
        "B 1 bb; epochal/a.py, epochal/b.py, epochal/c.py and 2 more"
    )
    assert list(describe_code(code, ALL))[1].endswith("epochal/d.py, epochal/e.py")
