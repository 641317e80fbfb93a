"""Connections of gloo: which ones a failed process closes."""

from __future__ import annotations

import socket

from epochal.distributed.gloo_connections import Connection, record_connections, shut_down


def connect(listener: socket.socket) -> socket.socket:
    return socket.create_connection(listener.getsockname())


def listen() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def receive(listener: socket.socket) -> bytes:
    with listener.accept()[0] as one:
        return one.recv(1)


def test_connections_made_in_the_block_are_shut_down_and_those_to_the_store_are_not() -> None:
    found: list[Connection] = []
    with listen() as ranks, listen() as store, connect(ranks) as before:
        with record_connections(found, store.getsockname()[1]):
            inside, to_store = connect(ranks), connect(store)
        shut_down(found)
        assert found == []
        with inside, to_store:
            before.sendall(b"x")
            to_store.sendall(b"x")
            received = [receive(listener) for listener in (ranks, ranks, store)]
    assert received == [b"x", b"", b"x"]


def test_a_file_that_got_the_number_of_a_closed_connection_stays_open() -> None:
    found: list[Connection] = []
    with listen() as ranks:
        with record_connections(found, 0):
            closed = connect(ranks)
        number = closed.fileno()
        closed.close()
        ranks.accept()[0].close()
        with connect(ranks) as other:
            assert other.fileno() == number
            assert [connection.file for connection in found] == [number]
            shut_down(found)
            other.sendall(b"x")
            assert receive(ranks) == b"x"
