"""A plain blocking connection for everything that is not timed: make a topic, remove it, ask once."""

import socket
import struct
import time
from collections.abc import Sequence

from benchmarks import wire

TOPIC_ALREADY_EXISTS = 36
RETRY_INTERVAL_S = 0.002


class RequestFailed(Exception):
    """A system answered with an error code, or with something that cannot be right."""


class Connection:
    """One request at a time, each waited for."""

    def __init__(self, address: tuple[str, int], timeout_s: float = 60.0) -> None:
        self._socket = socket.create_connection(address, timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, *frame_parts: bytes) -> bytes:
        """Send one frame; return the answer without its size."""
        self._socket.sendall(b"".join(frame_parts))
        (size_bytes,) = struct.unpack(">i", self._read(4))
        return self._read(size_bytes)

    def create_topic(self, topic: str, partitions: int, configs: Sequence[tuple[str, str]] = ()) -> None:
        code = wire.topic_error_code(self.ask(wire.create_topics_request([topic], partitions, configs)), topic)
        if code not in (0, TOPIC_ALREADY_EXISTS):
            raise RequestFailed(f"CreateTopics of {topic} answered error code {code}")

    def delete_topic(self, topic: str) -> None:
        code = wire.topic_error_code(self.ask(wire.delete_topics_request(topic)), topic)
        if code != 0:
            raise RequestFailed(f"DeleteTopics of {topic} answered error code {code}")

    def write_until_acknowledged(self, topic: str, partition: int, batch: bytes, deadline: float) -> None:
        """Produce one batch, again at a fine interval while the partition has no leader yet."""
        while True:
            answer = self.ask(*wire.produce_request(topic, partition, batch))
            code = _produce_error_code(answer, topic)
            if code == 0:
                return
            if time.perf_counter() > deadline:
                raise RequestFailed(f"{topic}-{partition} was never acknowledged: error code {code}")
            time.sleep(RETRY_INTERVAL_S)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, size_bytes: int) -> bytes:
        received = bytearray()
        while len(received) < size_bytes:
            piece = self._socket.recv(size_bytes - len(received))
            if not piece:
                raise ConnectionError("the connection was closed")
            received += piece
        return bytes(received)


def _produce_error_code(answer: bytes, topic: str) -> int:
    fields = wire.ProduceResponseLayout(topic).fields
    _, _, _, code, _ = fields.unpack_from(bytes(4) + answer)
    return int(code)
