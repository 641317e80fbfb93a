"""Completion scripts for bash, zsh and fish, written from the arguments of all verbs."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_KINDS = {
    "FILE|key=value": "configs",
    "key=value": "keys",
    "RUN": "runs",
    "FILE": "files",
    "DIR": "dirs",
    "CHECKPOINT": "files",
}


@final
@dataclass(frozen=True, slots=True)
class Option:
    """An option of a verb, or one of its arguments if it has no names."""

    names: tuple[str, ...]
    text: str
    takes_value: bool
    kind: str
    """How its value is completed: ``configs``, ``keys``, ``runs``, ``variants``, ``files``,
    ``dirs`` or empty."""

    choices: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class VerbWords:
    """The words that can follow a verb."""

    text: str
    options: tuple[Option, ...]
    arguments: tuple[Option, ...]


def read_words(parser: argparse.ArgumentParser, text: str) -> VerbWords:
    """The options and arguments that a parser declares, without hidden ones."""
    found = [_read(action) for action in parser._actions if action.help != argparse.SUPPRESS]
    options = tuple(one for one in found if one.names)
    return VerbWords(text, options, tuple(one for one in found if not one.names))


def _read(action: argparse.Action) -> Option:
    kind = _KINDS.get(str(action.metavar), "")
    kind = "variants" if "--variant" in action.option_strings else kind
    text = " ".join((action.help or "").split())
    choices = tuple(str(choice) for choice in action.choices or ())
    return Option(tuple(action.option_strings), text, action.nargs != 0, kind, choices)


def write_script(shell: str, verbs: Mapping[str, VerbWords], keys: Iterable[str]) -> str:
    """The script of a shell; ``keys`` are those that every config may set."""
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    return write(verbs, [f"{key}=" for key in keys])


_BASH = """# Completes epochal in bash; written by `epochal completion bash`.
_epochal() {{
    local word=$2 last=$3 verb=${{COMP_WORDS[1]}} kinds='' words='' options=''
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W {verbs} -- "$word"))
        return
    fi
    # bash splits words at =, and no value is completed.
    if [[ $word == = || $last == = ]]; then return; fi
    case "$verb $last" in
{values}
        *)
            case $verb in
{all}
            esac
            ;;
    esac
    if [[ $word == -* ]]; then kinds='' words=$options; fi
    case " $kinds " in
        *' configs '*|*' keys '*)
            compopt -o nospace
            words+=" "{keys}
            words+=" $(epochal completion keys -- "${{COMP_WORDS[@]:1:COMP_CWORD-1}}" 2>/dev/null \\
                | sed 's/$/=/')"
            ;;
        *' runs '*) words+=" $(epochal completion runs -- "${{COMP_WORDS[@]:1}}" 2>/dev/null)" ;;
        *' variants '*)
            words+=" $(epochal completion variants -- "${{COMP_WORDS[@]:1}}" 2>/dev/null)"
            ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    case " $kinds " in
        *' configs '*|*' files '*)
            compopt -o filenames
            COMPREPLY+=($(compgen -f -- "$word"))
            ;;
        *' dirs '*|*' runs '*) compopt -o filenames; COMPREPLY+=($(compgen -d -- "$word")) ;;
    esac
}}
complete -F _epochal epochal
"""


def _bash(verbs: Mapping[str, VerbWords], keys: Iterable[str]) -> str:
    return _BASH.format(
        verbs=shlex.quote(" ".join(verbs)),
        keys=shlex.quote(" ".join(keys)),
        values="\n".join(_value_cases(verbs)),
        all="\n".join(_verb_cases(verbs)),
    )


def _value_cases(verbs: Mapping[str, VerbWords]) -> Iterator[str]:
    for verb, found in verbs.items():
        for option in found.options:
            if option.takes_value:
                pattern = "|".join(f"'{verb} {name}'" for name in option.names)
                yield f"        {pattern}) {_assignments((option,))} ;;"


def _verb_cases(verbs: Mapping[str, VerbWords]) -> Iterator[str]:
    for verb, found in verbs.items():
        names = " ".join(name for option in found.options for name in option.names)
        options = f"options={shlex.quote(names)}"
        yield f"                {verb}) {_assignments(found.arguments)} {options} ;;"


def _assignments(options: tuple[Option, ...]) -> str:
    kinds = " ".join(option.kind for option in options if option.kind)
    words = " ".join(choice for option in options for choice in option.choices)
    return f"kinds={shlex.quote(kinds)} words={shlex.quote(words)}"


_ZSH = """#compdef epochal
# Completes epochal in zsh; written by `epochal completion zsh`.
_epochal() {{
    local verb=$words[2] last=$words[CURRENT-1] kinds='' choices=''
    local -a options verbs found
    if ((CURRENT == 2)); then
        verbs=(
{verbs}
        )
        _describe verb verbs
        return
    fi
    case "$verb $last" in
{values}
        *)
            case $verb in
{all}
            esac
            ;;
    esac
    if [[ $PREFIX == -* ]]; then
        _describe -o option options
        return
    fi
    [[ -n $choices ]] && compadd -- ${{=choices}}
    local typed=("${{(@)words[2,CURRENT-1]}}")
    case " $kinds " in
        *' configs '*|*' keys '*)
            found=({keys} ${{(f)"$(epochal completion keys -- $typed 2>/dev/null | sed 's/$/=/')"}})
            compadd -S '' -- $found
            ;;
        *' runs '*) compadd -- ${{(f)"$(epochal completion runs -- $typed 2>/dev/null)"}} ;;
        *' variants '*) compadd -- ${{(f)"$(epochal completion variants -- $typed 2>/dev/null)"}} ;;
    esac
    case " $kinds " in
        *' configs '*|*' files '*) _files ;;
        *' dirs '*|*' runs '*) _files -/ ;;
    esac
}}
if [[ $funcstack[1] == _epochal ]]; then _epochal "$@"; else compdef _epochal epochal; fi
"""


def _zsh(verbs: Mapping[str, VerbWords], keys: Iterable[str]) -> str:
    described = [f"            {_zsh_item(name, one.text)}" for name, one in verbs.items()]
    cases = []
    for verb, found in verbs.items():
        items = [_zsh_item(name, one.text) for one in found.options for name in one.names]
        assignments = _assignments(found.arguments).replace("words=", "choices=")
        cases.append(f"                {verb}) {assignments} options=({' '.join(items)}) ;;")
    return _ZSH.format(
        verbs="\n".join(described),
        keys=" ".join(map(shlex.quote, keys)),
        values="\n".join(_value_cases(verbs)).replace("words=", "choices="),
        all="\n".join(cases),
    )


def _zsh_item(name: str, text: str) -> str:
    return shlex.quote(f"{name}:{text}")


_FISH = """# Completes epochal in fish; written by `epochal completion fish`.
function __epochal_list
    set -l typed (commandline -opc)
    set -l words (epochal completion $argv[1] -- $typed[2..] 2>/dev/null)
    if test $argv[1] = keys
        string join \\n -- $words= {keys}
    else
        string join \\n -- $words
    end
end
function __epochal_verb
    set -l typed (commandline -opc)
    test (count $typed) -gt 1; and test "$typed[2]" = $argv[1]
end
complete -c epochal -f
"""
_FISH_LISTS = {
    "configs": "-k -F -a '(__epochal_list keys)'",
    "keys": "-k -a '(__epochal_list keys)'",
    "runs": "-a '(__epochal_list runs) (__fish_complete_directories)'",
    "variants": "-a '(__epochal_list variants)'",
    "files": "-F",
    "dirs": "-a '(__fish_complete_directories)'",
}


def _fish(verbs: Mapping[str, VerbWords], keys: Iterable[str]) -> str:
    lines = [_FISH.format(keys=" ".join(map(shlex.quote, keys)))]
    for verb, found in verbs.items():
        first = "'test (count (commandline -opc)) -eq 1'"
        lines.append(f"complete -c epochal -n {first} -a {verb} -d {_fish_text(found.text)}\n")
        for option in (*found.arguments, *found.options):
            words = [*map(_fish_name, option.names)]
            words += ["-d", _fish_text(option.text)] if option.names else []
            words += ["-x" if option.kind not in ("files", "configs") else "-r"] * bool(
                option.names and option.takes_value
            )
            words += [_FISH_LISTS[option.kind]] if option.kind else []
            words += [f"-a '{' '.join(option.choices)}'"] if option.choices else []
            lines.append(f"complete -c epochal -n '__epochal_verb {verb}' {' '.join(words)}\n")
    return "".join(lines)


def _fish_name(name: str) -> str:
    return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
