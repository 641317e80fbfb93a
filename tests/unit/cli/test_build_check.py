"""Builds for the check of the page: one process at a time, and what its output says."""

from __future__ import annotations

import threading

from epochal.cli.build_check import BuildChecks, read_needs
from epochal.web.site.launches import BuildFacts


def test_output_of_a_build_is_read() -> None:
    for code, text, errors, expected in [
        (0, 'noise\n{"parameters": 3, "memory_bytes": 48, "problems": []}', "", (3, 48, [])),
        (78, '{"problems": [["optim.lr", "is odd", "x"]]}', "", (None, None, ["is odd"])),
        (1, "", "Traceback\nKeyError: 'a'\n", (None, None, ["cannot be built: KeyError: 'a'"])),
        (-9, "{", "", (None, None, ["cannot be built: the process ended with code -9"])),
        (1, "[1]", "", (None, None, ["cannot be built: the process ended with code 1"])),
    ]:
        facts = read_needs(code, text, errors)
        found = [one.what for one in facts.problems]
        assert (facts.parameters, facts.memory_bytes, found) == expected, text


def test_a_question_is_built_once_and_asked_again_until_it_is_done() -> None:
    checks, may_end, builds = BuildChecks(wait_seconds=0.01), threading.Event(), []

    def build() -> BuildFacts:
        builds.append(1)
        may_end.wait()
        return BuildFacts(parameters=7)

    assert checks.ask("a", build) is None
    assert checks.ask("a", build) is None
    may_end.set()
    while (found := checks.ask("a", build)) is None:
        pass
    assert (found.parameters, len(builds)) == (7, 1)


def test_too_many_questions_are_refused() -> None:
    checks, may_end = BuildChecks(wait_seconds=0.0), threading.Event()

    def build() -> BuildFacts:
        may_end.wait()
        return BuildFacts()

    found = [checks.ask(str(number), build) for number in range(22)]
    assert found[19] is None
    assert found[21] == BuildFacts(note="too many checks at once; try again in a minute")
    may_end.set()
