"""DescribeQuorum, versions 0 to 2: the quorum leader says how far each member has come.

Learners are shown as observers. Nodes have one log each, so their directory ids are zero.
"""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.address import parse_address
from quorate.kernel.errors import ErrorCode
from quorate.kernel.topic_names import CLUSTER_METADATA
from quorate.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from quorate.protocol.messages.describe_quorum import Node as QuorumNode
from quorate.quorum.core.leader_requests import Describe, Description, MemberProgress
from quorate.quorum.leader_calls import NoQuorum

_LISTENER = "PEER"
#: The first version that says where the members are.
_NODES_VERSION = 2
#: Longer than an election takes.
_TIMEOUT_MS = 3_000


def handle(services: Services, context: RequestContext, request: DescribeQuorumRequest) -> HandlerResult:
    return _describe(services, context, request)


async def _describe(
    services: Services, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    try:
        description = await services.quorum.ask(Describe(), _TIMEOUT_MS)
    except NoQuorum:
        return DescribeQuorumResponse(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE, error_message="The quorum has no leader that answers."
        )
    assert isinstance(description, Description)
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    _partition(description, topic.topic_name, asked.partition_index) for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        nodes=_nodes(services) if context.api_version >= _NODES_VERSION else (),
    )


def _partition(description: Description, topic: str, index: int) -> ResponsePartitionData:
    if (topic, index) != (CLUSTER_METADATA, 0):
        return ResponsePartitionData(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="The quorum has the one partition of the cluster's metadata only.",
        )
    return ResponsePartitionData(
        partition_index=index,
        error_message=None,
        leader_id=description.leader.node_id,
        leader_epoch=description.leader.term,
        high_watermark=description.high_watermark,
        current_voters=[_replica(member) for member in description.members if member.is_voter],
        observers=[_replica(member) for member in description.members if not member.is_voter],
    )


def _replica(member: MemberProgress) -> ReplicaState:
    return ReplicaState(
        replica_id=member.node_id,
        log_end_offset=member.log_end_offset,
        last_fetch_timestamp=member.last_heard_ms,
        last_caught_up_timestamp=member.last_caught_up_ms,
    )


def _nodes(services: Services) -> list[QuorumNode]:
    """Where each member listens for the others; a node by itself listens nowhere."""
    found = []
    for member in services.quorum.driver.membership.members:
        listeners = []
        if member.address:
            address = parse_address(member.address)
            listeners.append(Listener(name=_LISTENER, host=address.host, port=address.port))
        found.append(QuorumNode(node_id=member.node_id, listeners=listeners))
    return found


API = Api(request=DescribeQuorumRequest, min_version=0, max_version=2, handle=handle)
