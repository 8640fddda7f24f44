"""Brokers that answer what a test tells them to, over real sockets on loopback and through the real codecs."""

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

from quorate.kernel.address import Address
from quorate.protocol.apis import APIS, find_api
from quorate.protocol.codec import decode
from quorate.protocol.frames import RequestHeader, decode_request_header, encode_response
from quorate.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from quorate.protocol.schema import NO_UUID, Request, Response

#: Bytes go out as they are; None closes the connection; SILENCE leaves the request without an answer.
SILENCE = b""
Answer = Response | bytes | None
Handler = Callable[[Request, RequestHeader], Answer]


class FakeBroker:
    """One listener. ``handlers`` answer by request type; ``seen`` keeps every request with its version."""

    def __init__(self, node_id: int, handlers: Mapping[type[Request], Handler]) -> None:
        self.node_id = node_id
        self.handlers = dict(handlers)
        self.seen: list[tuple[Request, int]] = []
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self._listener.getsockname()[1])

    def requests(self, kind: type[Request]) -> list[Request]:
        return [request for request, _ in self.seen if isinstance(request, kind)]

    def close(self) -> None:
        for connected in [self._listener, *self._open]:
            with suppress(OSError):  # It is closed already.
                connected.shutdown(socket.SHUT_RDWR)
            connected.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connected)
            thread = threading.Thread(target=self._serve, args=(connected,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connected: socket.socket) -> None:
        try:
            with connected, connected.makefile("rb") as source:
                while len(size := source.read(4)) == 4:
                    answer = self._answer(source.read(struct.unpack(">i", size)[0]))
                    if answer is None:
                        return
                    connected.sendall(answer)
        except OSError:
            return  # The client, or the end of the test, was faster.

    def _answer(self, frame: bytes) -> bytes | None:
        header = decode_request_header(frame)
        api = find_api(header.api_key)
        assert api is not None
        request = decode(api.request_type, frame, header.api_version, header.body_position)
        self.seen.append((request, header.api_version))
        answer = self.handlers[type(request)](request, header)
        if answer is None or isinstance(answer, bytes):
            return answer
        return b"".join(encode_response(header.correlation_id, answer, header.api_version))


class FakeCluster:
    """Brokers that tell the same metadata; the test moves leaders by changing ``leaders``."""

    def __init__(self, *node_ids: int, versions: Mapping[int, int] | None = None) -> None:
        self._versions = versions or {}
        #: topic -> partition -> (leader, epoch)
        self.leaders: dict[str, dict[int, tuple[int, int]]] = {}
        self.topic_ids: dict[str, object] = {}
        shared: dict[type[Request], Handler] = {ApiVersionsRequest: self.api_versions, MetadataRequest: self.metadata}
        self.brokers = {node_id: FakeBroker(node_id, shared) for node_id in node_ids}

    @property
    def bootstrap(self) -> tuple[str, ...]:
        return tuple(str(broker.address) for broker in self.brokers.values())

    def handle(self, kind: type[Request], handler: Callable[[int, Request, RequestHeader], Answer]) -> None:
        """The same handler for every broker, which is told the id of the one that was asked."""
        for node_id, broker in self.brokers.items():
            broker.handlers[kind] = partial(handler, node_id)

    def api_versions(self, request: Request, header: RequestHeader) -> Answer:
        keys = [
            ApiVersion(
                api_key=key, min_version=api.min_version, max_version=self._versions.get(int(key), api.max_version)
            )
            for key, api in APIS.items()
        ]
        return ApiVersionsResponse(api_keys=keys)

    def metadata(self, request: Request, header: RequestHeader) -> Answer:
        assert isinstance(request, MetadataRequest)
        names = list(self.leaders) if request.topics is None else [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host=broker.address.host, port=broker.address.port)
                for node_id, broker in self.brokers.items()
            ],
            cluster_id="fake",
            controller_id=min(self.brokers),
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        partitions = [
            MetadataResponsePartition(
                partition_index=index, leader_id=leader, leader_epoch=epoch, replica_nodes=[leader], isr_nodes=[leader]
            )
            for index, (leader, epoch) in self.leaders.get(name, {}).items()
        ]
        return MetadataResponseTopic(
            error_code=0 if name in self.leaders else 3,
            name=name,
            topic_id=self.topic_ids.get(name, NO_UUID),  # type: ignore[arg-type]
            partitions=partitions,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers.values():
            broker.close()
