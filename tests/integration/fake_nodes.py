"""Nodes that speak just enough Kafka to be examined, and say and do what a test tells them, true or not."""

import socketserver
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self
from uuid import UUID

from quorate.cli.doctor.observations import LeaderClaim
from quorate.kernel.errors import ErrorCode
from quorate.protocol.apis import APIS, ApiKey, find_api
from quorate.protocol.codec import decode
from quorate.protocol.frames import decode_request_header, encode_response
from quorate.protocol.messages import fetch, list_offsets, metadata, produce
from quorate.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from quorate.protocol.schema import Request, Response

HOST = "127.0.0.1"
TOPIC = "orders"
TOPIC_ID = UUID(int=1)
SPOKEN = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.PRODUCE)


class FakeNode:
    """One partition, orders-0. It names the leader of its ``claim`` and takes fetches and writes while it ``leads``."""

    def __init__(self, node_id: int, claim: LeaderClaim, *, leads: bool) -> None:
        self.node_id = node_id
        self.claim = claim
        self.takes_fetches = leads
        self.takes_writes = leads
        self.known: Iterable[FakeNode] = ()
        self._server = _Server(self)
        self.port: int = self._server.server_address[1]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: Request) -> Response:
        match request:
            case metadata.MetadataRequest():
                return self._metadata()
            case fetch.FetchRequest():
                code = ErrorCode.NONE if self.takes_fetches else ErrorCode.NOT_LEADER_OR_FOLLOWER
                data = fetch.PartitionData(error_code=code, records=b"")
                return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(topic=TOPIC, partitions=[data])])
            case produce.ProduceRequest():
                return self._refuse_write()
            case list_offsets.ListOffsetsRequest():
                return list_offsets.ListOffsetsResponse()
            case _:
                return ApiVersionsResponse(
                    api_keys=[
                        ApiVersion(api_key=key, min_version=APIS[key].min_version, max_version=APIS[key].max_version)
                        for key in SPOKEN
                    ]
                )

    def _metadata(self) -> metadata.MetadataResponse:
        ids = [node.node_id for node in self.known]
        partition = metadata.MetadataResponsePartition(
            leader_id=-1 if self.claim.leader is None else self.claim.leader,
            leader_epoch=self.claim.leader_epoch,
            replica_nodes=tuple(ids),
            isr_nodes=tuple(ids),
        )
        topic = metadata.MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=[partition])
        brokers = [
            metadata.MetadataResponseBroker(node_id=each.node_id, host=HOST, port=each.port) for each in self.known
        ]
        return metadata.MetadataResponse(brokers=brokers, topics=[topic], cluster_id="fake")

    def _refuse_write(self) -> produce.ProduceResponse:
        leader = self.claim.leader
        hint = produce.LeaderIdAndEpoch(
            leader_id=-1 if leader is None else leader, leader_epoch=self.claim.leader_epoch
        )
        if self.takes_writes:
            part = produce.PartitionProduceResponse(error_code=ErrorCode.CORRUPT_MESSAGE)
        else:
            part = produce.PartitionProduceResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=hint)
        topic = produce.TopicProduceResponse(name=TOPIC, partition_responses=[part])
        return produce.ProduceResponse(responses=[topic])


class FakeNodes:
    """All know each other and agree at first: the first leads, in epoch 4."""

    def __init__(self, *node_ids: int) -> None:
        self.truth = LeaderClaim(node_ids[0], 4)  # type: ignore[arg-type]
        self.nodes = {each: FakeNode(each, self.truth, leads=each == node_ids[0]) for each in node_ids}
        for node in self.nodes.values():
            node.known = list(self.nodes.values())

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes.values())

    def __getitem__(self, node_id: int) -> FakeNode:
        return self.nodes[node_id]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            node.close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, node: FakeNode) -> None:
        super().__init__((HOST, 0), _Handler)
        self.node = node
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        while size := self.rfile.read(4):
            frame = self.rfile.read(int.from_bytes(size))
            header = decode_request_header(frame)
            api = find_api(header.api_key)
            assert api is not None
            request = decode(api.request_type, frame, header.api_version, header.body_position)
            answer = encode_response(header.correlation_id, self.server.node.answer(request), header.api_version)
            self.wfile.write(b"".join(answer))
