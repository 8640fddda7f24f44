"""Who is in the quorum and in the cluster, and how far each member has come.

- AddRaftVoter, versions 0 to 1: a learner becomes a voter once it has caught up. Gap: a node becomes a learner by
  starting, so the listeners in the request are not used; answers always wait for the commit.
- RemoveRaftVoter, version 0: as in Apache Kafka, a voter that is a broker too goes on as an observer. A learner that is
  not registered as a broker any more can be removed as well.
- UnregisterBroker, version 0: as in Apache Kafka, a broker that still holds replicas can be unregistered too, unless
  the request has a field of Quorate's own that forbids it. The quorum leader decides.
- DescribeQuorum, versions 0 to 2: the quorum leader says how far each member has come. Learners are shown as observers.
  Nodes have one log each, so their directory ids are zero.
"""

import asyncio
from collections.abc import Callable

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.address import parse_address
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId
from quorate.kernel.topic_names import CLUSTER_METADATA
from quorate.metadata.core.commands import UnregisterBroker
from quorate.protocol.extensions import CautiousUnregisterBrokerRequest
from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from quorate.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from quorate.protocol.messages.describe_quorum import Node as QuorumNode
from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from quorate.protocol.messages.unregister_broker import UnregisterBrokerResponse
from quorate.quorum.core.leader_requests import ChangeRefused, Describe, Description, MemberProgress, Promote, Remove
from quorate.quorum.core.membership import ChangeRefusal, Membership
from quorate.quorum.leader_calls import NoQuorum

_REMOVAL_TIMEOUT_MS = 15_000
#: Between looks at whether this node sees a change of the membership.
_LOOK_AGAIN_S = 0.01
_LISTENER = "PEER"
#: The first version that says where the members are.
_NODES_VERSION = 2
#: Longer than an election takes.
_DESCRIPTION_TIMEOUT_MS = 3_000


async def add_raft_voter(
    services: Services, context: RequestContext, request: AddRaftVoterRequest
) -> AddRaftVoterResponse:
    try:
        _require_this_cluster(services, request.cluster_id)
        await _promote_learner(services, NodeId(request.voter_id), request.timeout_ms)
    except KafkaError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=error.message)
    return AddRaftVoterResponse(error_message=None)


async def remove_raft_voter(
    services: Services, context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    try:
        _require_this_cluster(services, request.cluster_id)
        await _remove_member(services, NodeId(request.voter_id), _REMOVAL_TIMEOUT_MS)
    except KafkaError as error:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)
    return RemoveRaftVoterResponse(error_message=None)


def _require_this_cluster(services: Services, cluster_id: str | None) -> None:
    if cluster_id not in (None, services.metadata.image.cluster_id):
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, "The request is meant for another cluster.")


async def unregister_broker(
    services: Services, context: RequestContext, request: CautiousUnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    validate_only = request.validated_broker_id >= 0
    command = UnregisterBroker(
        node_id=NodeId(request.validated_broker_id if validate_only else request.broker_id),
        even_with_replicas=not request.only_without_replicas,
    )
    (outcome,) = await services.metadata.submit([command], validate_only=validate_only)
    if isinstance(outcome, KafkaError):
        return UnregisterBrokerResponse(error_code=outcome.code, error_message=outcome.message)
    return UnregisterBrokerResponse(error_message=None)


async def describe_quorum(
    services: Services, context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    try:
        description = await services.quorum.ask(Describe(), _DESCRIPTION_TIMEOUT_MS)
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


async def _promote_learner(services: Services, learner: NodeId, timeout_ms: float) -> None:
    """Make a learner a voter as soon as it has caught up, or fail with why not."""
    member = services.quorum.driver.membership.member(learner)
    if member is None:
        raise KafkaError(
            ErrorCode.VOTER_NOT_FOUND, f"Node {learner} does not follow the metadata log: start it before it votes."
        )
    if member.is_voter:
        raise KafkaError(ErrorCode.DUPLICATE_VOTER, f"Node {learner} is a voter already.")
    await _change(services, Promote(node_id=learner), timeout_ms, lambda membership: learner in membership.voters)


async def _remove_member(services: Services, removed: NodeId, timeout_ms: float) -> None:
    """Take a voter's vote away, and what is left of a node that is no broker, or fail with why not."""
    if services.quorum.driver.membership.member(removed) is None:
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"Node {removed} is no member of the quorum.")

    def is_done(membership: Membership) -> bool:
        """A broker stays as a learner."""
        member = membership.member(removed)
        return member is None or (not member.is_voter and removed in services.metadata.image.brokers)

    await _change(services, Remove(node_id=removed), timeout_ms, is_done)


async def _change(
    services: Services, request: Promote | Remove, timeout_ms: float, is_done: Callable[[Membership], bool]
) -> None:
    deadline = services.loop.time() + timeout_ms / 1000
    try:
        answer, was_repeated = await services.quorum.leader_calls.ask(request, timeout_ms)
    except NoQuorum:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The quorum has not agreed on the change in time.") from None
    # What an earlier attempt did is what the asker wanted.
    if isinstance(answer, ChangeRefused) and not (was_repeated and answer.reason in _DONE_BEFORE):
        code = _CODES.get(answer.reason, ErrorCode.INVALID_REQUEST)
        raise KafkaError(code, f"The membership cannot be changed: {answer.reason}.")
    # A node that is removed need not hear of it any more.
    while request.node_id != services.node_id and not is_done(services.quorum.driver.membership):
        if services.loop.time() >= deadline:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "This node has not heard of the change in time.")
        await asyncio.sleep(_LOOK_AGAIN_S)


_DONE_BEFORE = frozenset(
    {str(ChangeRefusal.NOT_A_MEMBER), str(ChangeRefusal.NOT_A_LEARNER), str(ChangeRefusal.NOT_A_VOTER)}
)
_CODES = {
    str(ChangeRefusal.NOT_A_MEMBER): ErrorCode.VOTER_NOT_FOUND,
    str(ChangeRefusal.NOT_A_VOTER): ErrorCode.VOTER_NOT_FOUND,
    str(ChangeRefusal.NOT_A_LEARNER): ErrorCode.DUPLICATE_VOTER,
}


ADD_RAFT_VOTER = Api(request=AddRaftVoterRequest, min_version=0, max_version=1, handle=add_raft_voter)
REMOVE_RAFT_VOTER = Api(request=RemoveRaftVoterRequest, min_version=0, max_version=0, handle=remove_raft_voter)
UNREGISTER_BROKER = Api(request=CautiousUnregisterBrokerRequest, min_version=0, max_version=0, handle=unregister_broker)
DESCRIBE_QUORUM = Api(request=DescribeQuorumRequest, min_version=0, max_version=2, handle=describe_quorum)
