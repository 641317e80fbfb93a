from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epochal.config import freeze_source, load, load_variants
from epochal.errors import ConfigError, MissingFileError


def test_layers_win_in_order(write) -> None:
    write("base.yaml", "a: base\nb: base\nc: base\nd: base\n")
    text = "$BASE: base.yaml\nb: file\nc: file\nd: file\nvariants: {v: {c: variant, d: variant}}\n"
    config = load(write("c.yaml", text), variant="v", overrides=["d=line"])
    assert config.root.to_plain() == {"a": "base", "b": "file", "c": "variant", "d": "line"}
    assert [node.layer for node in config.root.mapping.values()] == [
        "base",
        "file",
        "variant",
        "command line",
    ]


def test_interpolation_sees_the_final_values(write) -> None:
    path = write("c.yaml", "a: 1\nb: ${a}\n")
    assert load(path, overrides=["a=5"]).root.to_plain() == {"a": 5, "b": 5}


def test_a_config_knows_where_it_came_from(write) -> None:
    config = load(write("c.toml", "a = 1\n"), overrides=["a=2"])
    assert (config.path, config.format, config.overrides) == (Path("c.toml"), "toml", ("a=2",))
    assert [(source.path.name, source.text) for source in config.sources] == [("c.toml", "a = 1\n")]


def test_the_format_is_known(write) -> None:
    for name, text, format in (
        ("c.yml", "a: 1", "yaml"),
        ("c.json", '{"a": 1}', "json"),
        ("c.py", "config = {'a': 1}", "yaml"),
    ):
        config = load(str(write(name, text)), allow_python=True)
        assert (config.format, config.root.to_plain()) == (format, {"a": 1}), name


def test_objects_are_configs_without_files() -> None:
    for source in ({"a": {"b": 1}}, argparse.Namespace(a=argparse.Namespace(b=1))):
        config = load(source, overrides=["a.b=2"])
        assert config.root.to_plain() == {"a": {"b": 2}}
        assert (config.path, config.sources, config.format) == (None, (), "yaml")


def test_the_sweep_section_is_separate_and_can_be_overridden(write) -> None:
    path = write("c.yaml", "a: 1\nsweep: {trials: 5, space: {a: '${x}'}}")
    config = load(path, overrides=["sweep.trials=9"])
    assert config.root.to_plain() == {"a": 1}
    assert config.sweep.to_plain() == {"trials": 9, "space": {"a": "${x}"}}
    assert not config.problems


def test_all_mistakes_are_collected(write) -> None:
    text = "a: 1\na: 2\nb: ${nope}\n$BASE: {x: nope.yaml}\nmodel: {type: A, NAME: B}\n"
    config = load(write("c.yaml", text), variant="none", overrides=["bad"])
    assert {problem.key for problem in config.problems} == {
        "a",
        "b",
        "x.$BASE",
        "model",
        "variants",
        "bad",
    }


def test_after_a_syntax_error_everything_is_unknown(write) -> None:
    config = load(write("c.yaml", "a: [1\n"), variant="v", overrides=["a.b=3"])
    assert len(config.problems) == 1
    assert config.broken == {""}
    assert len(config.sources) == 1


def test_the_same_problem_is_reported_once(write) -> None:
    write("base.yaml", "a: [1\n")
    path = write("c.yaml", "$BASE: [base.yaml, base.yaml]")
    assert len(load(path).problems) == 1


def test_a_missing_file_is_raised(write) -> None:
    write("c.yaml", "a: 1")
    with pytest.raises(MissingFileError, match=r"did you mean 'c\.yaml'") as caught:
        load("cc.yaml")
    assert caught.value.exit_code == 66


def test_what_cannot_be_read_at_all_is_raised(write) -> None:
    for content in (b"", b"# only\n", b"a: \0", b"\x80", b"[" * 99, b"x" * 1_000_001):
        with pytest.raises(ConfigError, match=r"^c\.yaml: "):
            load(write("c.yaml", content))


def test_variants_are_in_the_order_of_the_file(write) -> None:
    assert list(load(write("c.yaml", "variants: {b: {}, a: {}}")).variants) == ["b", "a"]
    assert not load({"a": 1}).variants


def test_other_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="got list"):
        load([1, 2])


def test_variants_that_nest_too_deep_are_a_problem(write) -> None:
    path = write("c.yaml", f"variants: {{v: {{{'a.' * 100}b: 1}}}}")
    config = load(path, variant="v")
    assert "too big or too deep" in config.problems[0].what


def test_importing_the_package_imports_no_parser() -> None:
    code = "import sys, epochal.config; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"ruamel", "ruamel.yaml", "tomlkit", "tomllib", "argparse", "numpy", "torch", "runpy"}
    assert not heavy & set(done.stdout.split())


HOSTILE = {
    "laughs.yaml": "\n".join(
        ["a0: &a0 [x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30))]
    ),
    "merge.yaml": "a: &a {x: 1}\nb: {<<: [*a, *a], <<: *a}\n",
    "system.yaml": "a: !!python/object/apply:os.system ['touch pwned']\n",
    "name.yaml": "a: !!python/name:os.system\n",
    "module.yaml": "!!python/module:os : 1\n",
    "loop.yaml": "a: &a {b: *a}\n",
    "deep.yaml": "a: " + "[" * 5_000,
    "dash.yaml": "- " * 5_000,
    "question.yaml": "? " * 5_000,
    "anchors.yaml": "\n".join(f"a{i}: &a{i} x" for i in range(9_000)),
    "tag.yaml": "a: !" + "x" * 100_000,
    "colons.yaml": ":" * 100_000,
    "key.yaml": "k" * 100_000 + ": 1",
    "interpolate.yaml": "\n".join(f"a{i}: ${{a{i + 1}}}${{a{i + 1}}}" for i in range(500)),
    "openings.yaml": "a: '" + "${" * 50_000 + "'",
    "dollars.yaml": "a: '" + "$" * 100_000 + "'",
    "escapes.yaml": 'a: "' + "\\x41" * 50_000 + '"',
    "octal.yaml": "a: 0o" + "7" * 100_000,
    "digits.json": '{"a": ' + "9" * 100_000 + "}",
    "exponent.json": '{"a": 1e' + "9" * 100_000 + "}",
    "deep.json": '{"a":' * 50_000,
    "digits.toml": "a = " + "9" * 100_000,
    "dotted.toml": ".".join("a" * 50_000) + " = 1",
    "header.toml": "[" + ".".join("a" * 50_000) + "]",
    "deep.toml": "a = " + "[" * 50_000,
    "quotes.toml": 'a = """' + '"' * 50_000,
    "base.yaml": "$BASE: [/etc/passwd, ../../../../etc/hosts, /dev/zero, /proc/self/environ]",
    "self.yaml": "$BASE: self.yaml",
}


def test_hostile_files_are_reported_as_problems(write) -> None:
    for name in HOSTILE:
        path = write(name, HOSTILE[name])
        try:
            problems = load(path).problems
        except ConfigError as error:
            problems = error.problems
        harmless = {"anchors.yaml", "dollars.yaml", "escapes.yaml"}
        assert problems or name in harmless
        assert len("\n".join(map(str, problems))) < 200_000, name
        assert not Path("pwned").exists(), name


SNIPPETS = st.lists(
    st.sampled_from(
        ["a", "b: ", "$BASE: ", "- ", "\n", "  ", "{", "}", "[", "]", ", ", ": ", "&x ", "*x ",
         "!!str ", "'", '"', "\\", "${a}", "${", "$delete", "variants:\n  v: ", "#", "|\n", "1e5",
         "\t", "? ", "<<: ", "type: ", "NAME: ", "%", "---\n", "=", "\u2028", "\x85", "x.yaml"]
    ),
    max_size=25,
).map("".join)  # fmt: skip


@pytest.mark.parametrize("suffix", ["yaml", "toml", "json"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=SNIPPETS)
def test_no_text_raises_another_exception(write, suffix, text) -> None:
    try:
        config = load(write(f"x.{suffix}", text), variant="v")
    except ConfigError:
        return
    for problem in config.problems:
        assert str(problem)
        assert "\n" not in problem.what


def test_all_variants_are_made_of_one_reading(tmp_path) -> None:
    file = tmp_path / "a.py"
    text = (
        "from pathlib import Path\n"
        "with Path(__file__).with_name('count').open('a') as f: f.write('x')\n"
        "config = {'a': 1, 'variants': {'two': {'a': 2}, 'three': {'a': '${b}'}}, 'b': 3}"
    )
    file.write_text(text)
    configs = list(load_variants(file, overrides=["c=4"], allow_python=True))
    assert [(one.variant, one.root.to_plain()) for one in configs] == [
        (None, {"a": 1, "b": 3, "c": 4}),
        ("two", {"a": 2, "b": 3, "c": 4}),
        ("three", {"a": 3, "b": 3, "c": 4}),
    ]
    assert (tmp_path / "count").read_text() == "x"
    for one in configs[1:]:
        assert load(file, variant=one.variant, overrides=["c=4"], allow_python=True) == one


def test_mistakes_of_one_variant_do_not_affect_the_next(tmp_path) -> None:
    source = {"a": 1, "variants": {"bad": {"a.b": 2}, "good": {"a": 3}}}
    found = {
        one.variant: [problem.key for problem in one.problems] for one in load_variants(source)
    }
    assert found == {None: [], "bad": ["variants.bad.a.b"], "good": []}


def test_a_frozen_config_is_read_from_its_texts(tmp_path: Path) -> None:
    main, base = tmp_path / "main.yaml", tmp_path / "deep" / "base.yaml"
    base.parent.mkdir()
    base.write_text("optim: {lr: 0.1, momentum: 0.9}\n")
    main.write_text("$BASE: deep/base.yaml\nvariants: {hot: {optim.lr: 0.5}}\n")
    before = load(main, variant="hot", overrides=["optim.momentum=0"])
    frozen = freeze_source(main, before.sources)
    main.write_text("other: 1\n")
    base.unlink()
    after = load(frozen, variant="hot", overrides=["optim.momentum=0"])
    assert after == before


def test_a_frozen_config_needs_no_other_file(tmp_path: Path) -> None:
    main = tmp_path / "main.yaml"
    main.write_text("a: 1\n")
    frozen = freeze_source(main, load(main).sources)
    (tmp_path / "base.yaml").write_text("b: 2\n")
    text = dict.fromkeys(frozen.texts, "$BASE: base.yaml\n")
    (problem,) = load(replace(frozen, texts=text)).problems
    assert problem.what == f"{tmp_path / 'base.yaml'}: was not frozen"


def test_a_frozen_config_is_read_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "base.yaml").write_text("seed: 3\n")
    (tmp_path / "config.yaml").write_text("$BASE: base.yaml\ntag: x\n")
    monkeypatch.chdir(tmp_path)
    main = Path("config.yaml")
    frozen = freeze_source(main, load(main).sources)
    monkeypatch.chdir("/")
    after = load(frozen)
    assert after.root.to_plain() == {"seed": 3, "tag": "x"}
    assert not after.problems
