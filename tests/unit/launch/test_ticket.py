"""What is kept alive is known to later supervisors, and has one at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from epochal import durable
from epochal.errors import RecordError
from epochal.launch.ticket import Ticket, find_ticket
from epochal.records.process import host_name, process_token


@pytest.fixture
def ticket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ticket:
    monkeypatch.chdir(tmp_path)
    return find_ticket("digits", ["epochal", "run", "digits.yaml"])


def test_the_same_command_in_the_same_folder_has_the_same_ticket(
    ticket: Ticket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["epochal", "run", "digits.yaml"]
    assert ticket == find_ticket("digits", command)
    assert ticket != find_ticket("digits", [*command, "seed=1"])
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    assert ticket != find_ticket("digits", command)


def test_a_ticket_is_open_until_its_work_is_done(ticket: Ticket) -> None:
    assert not ticket.is_open
    ticket.open(["epochal"])
    assert ticket.is_open
    ticket.take(["epochal"])
    ticket.close()
    assert not ticket.is_open
    ticket.close()


def test_the_run_is_known_as_soon_as_it_has_a_folder(ticket: Ticket, tmp_path: Path) -> None:
    assert ticket.read_run() is None
    ticket.open([])
    ticket.run_file.write_text(str(tmp_path))
    assert ticket.read_run() == tmp_path
    ticket.run_file.write_text(str(tmp_path / "gone"))
    assert ticket.read_run() is None


def test_a_run_below_this_folder_is_named_as_people_type_it(
    ticket: Ticket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    ticket.open([])
    ticket.run_file.write_text(str(tmp_path / "runs" / "a"))
    monkeypatch.chdir(tmp_path)
    assert ticket.read_run() == Path("runs", "a")
    monkeypatch.chdir(tmp_path / "runs" / "a")
    assert ticket.read_run() == tmp_path / "runs" / "a"


def test_a_living_supervisor_is_not_replaced(ticket: Ticket) -> None:
    ticket.open([])
    parent = os.getppid()
    facts = {"pid": parent, "host": host_name(), "process": process_token(parent)}
    durable.write_json(ticket.path, facts)
    with pytest.raises(RecordError, match=f"process {parent} on .* looks after this command"):
        ticket.take([])


@pytest.mark.parametrize("facts", [{"pid": 1, "process": "an earlier one"}, {"pid": "?"}, {}])
def test_a_dead_or_unknown_supervisor_is_replaced(ticket: Ticket, facts: dict[str, object]) -> None:
    ticket.open([])
    durable.write_json(ticket.path, {"host": host_name(), **facts})
    ticket.take(["epochal"])
    text = ticket.path.read_text()
    assert str(os.getpid()) in text
