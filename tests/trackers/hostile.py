"""Web servers on 127.0.0.1 that do to a tracker what servers do on bad days."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

Manner = Callable[[socket.socket, threading.Event], None]


def never_answers(_connection: socket.socket, over: threading.Event) -> None:
    over.wait()


def dies_in_the_middle(connection: socket.socket, _over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")


def drips(connection: socket.socket, over: threading.Event) -> None:
    """A byte each 50 ms keeps every timeout between two bytes from coming."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
    while not over.wait(0.05):
        connection.sendall(b" ")


def says(status: str, headers: str = "") -> Manner:
    def answer(connection: socket.socket, _over: threading.Event) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n"
        connection.sendall(f"{head}{headers}\r\n{{}}".encode())

    return answer


MANNERS: dict[str, Manner] = {
    "never answers": never_answers,
    "429": says("429 Too Many Requests", "Retry-After: 3600\r\n"),
    "500": says("500 Internal Server Error"),
    "dies in the middle": dies_in_the_middle,
    "drips": drips,
}


class Server(NamedTuple):
    """A server that is up; `asked` has an entry for each request that has come."""

    address: str
    asked: list[bytes]


@contextmanager
def server(manner: Manner) -> Iterator[Server]:
    """Serves in that manner during the block, and ends with it."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []
    asked: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            asked.append(connection.recv(65536))
            manner(connection, over)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connections.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield Server(f"http://127.0.0.1:{listener.getsockname()[1]}", asked)
    finally:
        over.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in connections:
            with suppress(OSError):
                connection.close()
