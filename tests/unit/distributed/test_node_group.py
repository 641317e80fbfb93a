"""The machines of a run: they agree on starts, refuse other code, and name what is out of reach."""

from __future__ import annotations

import socket

import pytest

from epochal.distributed import node_group
from epochal.distributed.node_group import NodesLostError, join_nodes, parse_endpoint, single_node
from epochal.errors import ConfigError

FACTS = {"Epochal": "1.0 (aaaa)", "the code of the project": "1234"}


def find_endpoint() -> str:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return f"localhost:{probe.getsockname()[1]}"


def join(
    endpoint: str, facts: dict[str, str] | None = None, **options: float
) -> node_group.NodeGroup:
    told = list[str]()
    return join_nodes(
        endpoint,
        min_nodes=1,
        max_nodes=2,
        facts=facts or FACTS,
        tell=told.append,
        **options,
    )


def test_machines_agree_on_the_run_that_a_start_resumes() -> None:
    nodes = single_node()
    assert nodes.begin_round() == ""
    nodes.read_run = lambda: "/runs/a"
    nodes.publish_run()
    assert nodes.begin_round() == ""  # the same start
    nodes.end_round()
    nodes.end_round()  # another machine saw the same failure
    assert nodes.begin_round() == "/runs/a"
    nodes.leave()
    assert not nodes.wait_for_round()
    with pytest.raises(NodesLostError, match="the run has ended on another machine"):
        nodes.begin_round()


def test_machine_with_another_epochal_or_other_code_is_refused() -> None:
    endpoint = find_endpoint()
    host = join(endpoint)
    with pytest.raises(ConfigError) as caught:
        join(endpoint, {"Epochal": "2.0 (bbbb)", "the code of the project": "5678"})
    assert [str(one).splitlines()[0] for one in caught.value.problems] == [
        "--nnodes: Epochal: '2.0 (bbbb)' here, '1.0 (aaaa)' on the machine at the endpoint",
        "--nnodes: the code of the project: '5678' here, '1234' on the machine at the endpoint",
    ]
    join(endpoint)
    del host


def test_launcher_that_starts_at_the_same_moment_on_the_same_machine_joins_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint = find_endpoint()
    monkeypatch.setattr(node_group, "_can_listen", lambda *_: True)  # for both: neither listens yet
    first, second = join(endpoint), join(endpoint)
    assert (first._is_host, second._is_host) == (True, False)


def test_endpoint_that_cannot_be_reached_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_group, "_can_listen", lambda *_: False)  # as on another machine
    endpoint = find_endpoint()
    with pytest.raises(ConfigError, match=f"'{endpoint}' cannot be reached: Connection refused"):
        join(endpoint, reach_seconds=0.0)


def test_port_of_another_program_is_named() -> None:
    with socket.create_server(("localhost", 0)) as mute:
        port = mute.getsockname()[1]
        with pytest.raises(ConfigError, match=f"'localhost:{port}': another program uses this"):
            join(f"localhost:{port}", answer_seconds=0.1)


def test_endpoint_is_a_host_and_a_port() -> None:
    assert parse_endpoint("[::1]:80") == ("::1", 80)
    for text in ("node1", "node1:", ":80", "node1:0", "node1:70000", "node1:http"):
        with pytest.raises(ConfigError, match="--rdzv-endpoint: must be HOST:PORT, got"):
            parse_endpoint(text)


def test_wait_must_be_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(node_group.WAIT_VARIABLE, "long")
    nodes = single_node()
    nodes.begin_round()
    with pytest.raises(ConfigError, match="EPOCHAL_NODES_WAIT: must be a number of seconds"):
        nodes.make_rendezvous()
