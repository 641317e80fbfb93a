from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from epochal.config import Config, load
from epochal.errors import ConfigError


def plain(path: Path) -> Any:
    config = load(path)
    assert not config.problems, "\n".join(map(str, config.problems))
    return config.root.to_plain()


def only_problem(config: Config) -> str:
    (problem,) = config.problems
    return str(problem)


def test_a_file_wins_over_its_base(write) -> None:
    write("base.yaml", "a: 1\nb: {x: 1, y: [1, 2]}\n")
    assert plain(write("c.yaml", "$BASE: base.yaml\nb: {y: [3]}\nc: 4\n")) == {
        "a": 1,
        "b": {"x": 1, "y": [3]},
        "c": 4,
    }


def test_later_bases_win(write) -> None:
    write("one.yaml", "a: 1\nb: 1\nc: 1\n")
    write("two.yaml", "b: 2\nc: 2\n")
    assert plain(write("c.yaml", "$BASE: [one.yaml, two.yaml]\nc: 3")) == {"a": 1, "b": 2, "c": 3}


def test_a_base_may_be_loaded_into_a_section(write) -> None:
    write("adam.yaml", "type: Adam\nlr: 1\n")
    write("net.yaml", "width: 3\n")
    text = "$BASE: {optim: adam.yaml, task.model: net.yaml}\noptim: {lr: 2}\n"
    assert plain(write("c.yaml", text)) == {
        "optim": {"type": "Adam", "lr": 2},
        "task": {"model": {"width": 3}},
    }


def test_the_forms_may_be_mixed(write) -> None:
    write("root.yaml", "tag: root\noptim: {lr: 0, betas: [1]}\n")
    write("one.yaml", "lr: 1\neps: 1\n")
    write("two.yaml", "eps: 2\n")
    text = "$BASE: [root.yaml, {optim: [one.yaml, two.yaml]}]\n"
    assert plain(write("c.yaml", text)) == {
        "tag": "root",
        "optim": {"lr": 1, "betas": [1], "eps": 2},
    }


def test_a_base_may_stand_inside_a_section_or_a_list(write) -> None:
    write("net.yaml", "NAME: Net\nwidth: 3\n")
    text = "model: {$BASE: net.yaml, width: 4}\nhooks: [{$BASE: [net.yaml]}, 3]\n"
    assert plain(write("c.yaml", text)) == {
        "model": {"type": "Net", "width": 4},
        "hooks": [{"type": "Net", "width": 3}, 3],
    }


def test_relative_paths_start_from_the_file_that_holds_them(write) -> None:
    write("shared/deep/leaf.yaml", "leaf: 1\n")
    write("shared/mid.yaml", "$BASE: deep/leaf.yaml\nmid: 1\n")
    write("shared/leaf.yaml", "wrong: 1\n")
    assert plain(write("exp/c.yaml", "$BASE: ../shared/mid.yaml\n")) == {"leaf": 1, "mid": 1}


def test_formats_may_be_mixed(write) -> None:
    write("a.toml", "[optim]\nlr = 1\neps = 1\n")
    write("b.json", '{"$BASE": "a.toml", "optim": {"eps": 2}}')
    assert plain(write("c.yaml", "$BASE: b.json\n")) == {"optim": {"lr": 1, "eps": 2}}
    assert plain(write("d.toml", '"$BASE" = ["c.yaml"]\n')) == {"optim": {"lr": 1, "eps": 2}}


def test_a_diamond_is_no_cycle(write) -> None:
    write("root.yaml", "a: root\nb: root\nc: root\n")
    write("left.yaml", "$BASE: root.yaml\nb: left\n")
    write("right.yaml", "$BASE: root.yaml\nc: right\n")
    path = write("c.yaml", "$BASE: [left.yaml, right.yaml]\n")
    # The right arm brings the root's own values again, as any later base does.
    assert plain(path) == {"a": "root", "b": "root", "c": "right"}


def test_one_base_may_serve_two_sections(write) -> None:
    write("data.yaml", "workers: 4\n")
    path = write(
        "c.yaml", "$BASE: {data.train: data.yaml, data.val: data.yaml}\ndata: {val: {workers: 1}}"
    )
    assert plain(path) == {"data": {"train": {"workers": 4}, "val": {"workers": 1}}}


def test_each_base_is_read_and_kept_once(write) -> None:
    write("root.yaml", "a: 1")
    write("left.yaml", "$BASE: root.yaml")
    path = write("c.yaml", "$BASE: [root.yaml, left.yaml, root.yaml]\nx: {$BASE: root.yaml}")
    names = [source.path.name for source in load(path).sources]
    assert names == ["c.yaml", "root.yaml", "left.yaml"]


def test_a_cycle_is_shown_with_its_chain(write) -> None:
    write("b.yaml", "$BASE: c.yaml\n")
    write("c.yaml", "$BASE: a.yaml\n")
    config = load(write("a.yaml", "tag: x\n$BASE: b.yaml\n"))
    assert only_problem(config) == (
        "$BASE: base files form a cycle: a.yaml -> b.yaml -> c.yaml -> a.yaml\n"
        "  set in c.yaml:1:8\n"
        "    $BASE: a.yaml\n"
        "           ^^^^^^\n"
        "  remove one of these $BASE entries"
    )
    assert config.root.to_plain() == {"tag": "x"}


def test_a_file_may_not_be_its_own_base_even_through_a_link(write) -> None:
    path = write("a.yaml", "$BASE: link.yaml\n")
    Path("link.yaml").symlink_to("a.yaml")
    assert "form a cycle: a.yaml -> a.yaml" in only_problem(load(path))


def test_sixteen_levels_are_enough(write) -> None:
    write("0.yaml", "a: 0")
    for i in range(1, 18):
        write(f"{i}.yaml", f"$BASE: {i - 1}.yaml")
    assert plain(Path("16.yaml")) == {"a": 0}
    assert "nested more than 16 files deep" in only_problem(load("17.yaml"))


def test_too_many_bases_are_refused(write) -> None:
    write("a.yaml", "a: 1")
    names = ", ".join(["a.yaml"] * 300)
    problems = load(write("c.yaml", f"$BASE: [{names}]")).problems
    assert "more than 256 bases" in problems[0].what


def test_bases_that_double_at_every_level_are_refused(write) -> None:
    write("0.yaml", "x: 1\ny: 2\n")
    for i in range(1, 17):
        write(f"{i}.yaml", f"$BASE: {{x: {i - 1}.yaml, y: {i - 1}.yaml}}")
    problems = load("16.yaml").problems
    assert any("more than 10,000 values" in problem.what for problem in problems)


def test_bases_that_nest_too_deep_are_refused(write) -> None:
    deep = "{x: " * 40 + "1" + "}" * 40
    write("deep.yaml", f"x: {deep}")
    path = write("c.yaml", f"$BASE: {{{'.'.join('abcdefghijklmnopqrstuvwxyz')}: deep.yaml}}")
    with pytest.raises(ConfigError, match="more than 64 levels deep"):
        load(path)


def test_a_missing_base_is_placed_and_leaves_everything_unknown(write) -> None:
    write("base.yaml", "a: 1")
    config = load(write("c.yaml", "tag: x\n$BASE: bas.yaml\n"))
    assert only_problem(config) == (
        "$BASE: bas.yaml: no such file\n"
        "  set in c.yaml:2:8\n"
        "    $BASE: bas.yaml\n"
        "           ^^^^^^^^\n"
        "  did you mean 'base.yaml'?"
    )
    assert config.broken == {""}


def test_a_missing_base_of_a_section_leaves_only_that_unknown(write) -> None:
    config = load(write("c.yaml", "$BASE: {optim: nope.yaml}\nmodel: {$BASE: nope.yaml}\n"))
    assert [problem.key for problem in config.problems] == ["model.$BASE", "optim.$BASE"]
    assert config.broken == {"optim", "model"}


def test_a_base_that_cannot_be_read_is_a_problem(write) -> None:
    for content, message in (
        (b"", "is empty"),
        (b"a: \0", "NUL byte"),
        (b"a: " + b"x" * 1_000_000, "bigger than"),
        (b"[" * 100, "64 levels deep"),
        (b"- a\n" * 20_000, "10,000 values"),
    ):
        write("base.yaml", content)
        config = load(write("c.yaml", "$BASE: base.yaml\n"))
        assert message in only_problem(config), content
        assert "set in c.yaml:1:8" in only_problem(config), content
        assert config.broken == {""}, content


def test_a_mistake_in_a_base_is_shown_where_it_is(write) -> None:
    write("optim.yaml", "lr: 1\nlr: 2\n")
    config = load(write("c.yaml", "$BASE: {optim: optim.yaml}\n"))
    assert "optim.lr: duplicate key 'lr'\n  set in optim.yaml:2:1" in only_problem(config)


def test_a_syntax_error_in_a_base_breaks_its_section(write) -> None:
    write("optim.yaml", "lr: [1\n")
    config = load(write("c.yaml", "$BASE: {optim: optim.yaml}\nx: ${optim.lr}\n"))
    assert "optim.yaml: this '[' is never closed" in only_problem(config)
    assert config.broken == {"optim", "x"}


def test_what_names_no_base_is_reported(write) -> None:
    for base, message in (
        ("3", "expected a path, a list or a mapping of sections, got 3"),
        ("null", "got null"),
        ("[a.yaml, true]", "got true"),
        ("{'': a.yaml}", "'' is not a path of keys"),
        ("{a..b: a.yaml}", "'a..b' is not a path of keys"),
        (".", "is a folder"),
        ("a.txt", "no such file"),
    ):
        write("a.yaml", "a: 1")
        assert message in only_problem(load(write("c.yaml", f"$BASE: {base}\n")))


def test_python_bases_need_permission(write) -> None:
    write("base.py", "config = {'a': 1}")
    path = write("c.yaml", "$BASE: base.py\n")
    assert "--allow-python" in only_problem(load(path))
    assert load(path, allow_python=True).root.to_plain() == {"a": 1}


def test_a_mapping_may_name_bases_below_the_current_folder(write) -> None:
    write("base.yaml", "a: 1\nb: 1\n")
    config = load({"$BASE": "base.yaml", "b": 2})
    assert config.root.to_plain() == {"a": 1, "b": 2}
    assert [source.path.name for source in config.sources] == ["base.yaml"]


def test_delete_removes_an_inherited_key(write) -> None:
    write("one.yaml", "optim: {lr: 1, eps: 2}\ntag: x\n")
    write("two.yaml", "optim: {eps: $delete}\n")
    assert plain(write("c.yaml", "$BASE: [one.yaml, two.yaml]\ntag: $delete\n")) == {
        "optim": {"lr": 1}
    }


def test_every_value_knows_its_layer(write) -> None:
    write("base.yaml", "a: 1\nb: 1\n")
    root = load(write("c.yaml", "$BASE: base.yaml\nb: 2\n")).root
    a, b = root.mapping["a"], root.mapping["b"]
    assert (a.layer, b.layer) == ("base", "file")
    assert (b.replaced.value, str(b.replaced.place)) == (1, "base.yaml:2:4")
