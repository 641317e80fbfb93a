"""Which requirements are proven by tests and which are still missing, from ``features.toml``."""

from __future__ import annotations

import sys
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("features.toml")
GROUPS = {
    "Q": ("pipeline and task", 34),
    "T": ("launcher, models and complaints", 35),
    "A": ("one-file experiments and records", 66),
    "C": ("solvers and hooks", 57),
    "L": ("training workflow", 27),
    "U": ("unified concepts", 34),
    "D": ("defects not to repeat", 25),
}
"""The group of each letter, and its number of requirements."""

_WIDTH = 100
_NAME = 3 + max(len(name) for name, _ in GROUPS.values())


@dataclass(frozen=True)
class Feature:
    """One requirement: its title, the tests that prove it, and what is missing."""

    number: str
    title: str
    tests: tuple[str, ...] = ()
    part: str = ""
    """What is missing if it is done in part."""

    @property
    def is_done(self) -> bool:
        """Whether tests prove all of it."""
        return bool(self.tests) and not self.part


def read_features(file: Path = FILE) -> list[Feature]:
    """Every requirement, in the order of the file."""
    with file.open("rb") as stream:
        table = tomllib.load(stream)
    return [
        Feature(number, entry["title"], tuple(entry.get("tests", ())), entry.get("part", ""))
        for number, entry in table.items()
    ]


def describe(features: list[Feature]) -> str:
    """Counts per group, then what is missing."""
    lines = [f"{'':{_NAME}}  done  in part  open"]
    for letter, (name, _) in GROUPS.items():
        lines.append(
            _count(f"{letter}  {name}", [one for one in features if one.number[0] == letter])
        )
    lines += [_count("all", features), ""]
    for letter, (name, _) in GROUPS.items():
        missing = [one for one in features if one.number[0] == letter and not one.is_done]
        if missing:
            lines += [f"{letter}: {name}", *(line for one in missing for line in _lines(one)), ""]
    return "\n".join(lines)


def _count(name: str, features: list[Feature]) -> str:
    done = sum(one.is_done for one in features)
    in_part = sum(bool(one.tests and one.part) for one in features)
    return f"{name:{_NAME}}  {done:4}  {in_part:7}  {len(features) - done - in_part:4}"


def _lines(feature: Feature) -> list[str]:
    lines = [f"  {feature.number:4} {feature.title}"]
    if feature.part:
        indent = " " * 9
        lines += textwrap.wrap(
            f"missing: {feature.part}", _WIDTH, initial_indent=indent, subsequent_indent=indent
        )
    return lines


if __name__ == "__main__":
    sys.stdout.write(describe(read_features()))
