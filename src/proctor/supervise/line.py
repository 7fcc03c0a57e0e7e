"""The supervisor's end of the connection to a child: never blocks, whatever the child does."""

from __future__ import annotations

from socket import SHUT_WR, socket

from proctor.supervise import wire

SEND_BYTES = 1 << 20
RECEIVE_LIMIT = 8 << 20


class Line:
    """A non-blocking connection that carries frames."""

    def __init__(self, connection: socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._out = bytearray()
        self._unpacker: wire.Unpacker[wire.FromChild] = wire.Unpacker(wire.FromChild)
        self.ended = False

    def fileno(self) -> int:
        """Descriptor to select on."""
        return self._socket.fileno()

    @property
    def wants_to_send(self) -> bool:
        """Whether something waits until the child reads on."""
        return bool(self._out)

    def send(self, message: wire.ToChild) -> None:
        """Queues a message; `flush` sends it."""
        self._out += wire.pack(message)

    def flush(self) -> None:
        """Sends what the connection takes now."""
        while self._out:
            try:
                with memoryview(self._out) as waiting:
                    sent = self._socket.send(waiting[:SEND_BYTES])
            except BlockingIOError:
                return
            except OSError:
                self._out.clear()  # nobody reads any more: `receive` will see the end
                return
            del self._out[:sent]

    def receive(self) -> list[wire.FromChild]:
        """What has come in. Sets `ended` once the child has hung up.

        Raises:
            ProtocolError: it is no message.
        """
        messages: list[wire.FromChild] = []
        received = 0
        while not self.ended and received < RECEIVE_LIMIT:
            try:
                data = self._socket.recv(wire.RECEIVE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self.ended = not data
            received += len(data)
            messages += self._unpacker.feed(data)
        return messages

    def end_feed(self) -> None:
        """Tells the child that no request follows."""
        self.flush()
        try:
            self._socket.shutdown(SHUT_WR)
        except OSError:
            self.ended = True

    def close(self) -> None:
        """Hangs up."""
        self._socket.close()
