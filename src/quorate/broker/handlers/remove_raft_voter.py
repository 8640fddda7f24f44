"""RemoveRaftVoter, version 0.

As in Apache Kafka, a voter that is a broker too goes on as an observer. A learner that is not registered as a broker
any more can be removed as well.
"""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.quorum_membership import remove_member
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId
from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

_TIMEOUT_MS = 15_000


def handle(services: Services, context: RequestContext, request: RemoveRaftVoterRequest) -> HandlerResult:
    if request.cluster_id not in (None, services.metadata.image.cluster_id):
        return RemoveRaftVoterResponse(
            error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message="The request is meant for another cluster."
        )
    return _remove(services, request)


async def _remove(services: Services, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    try:
        await remove_member(services, NodeId(request.voter_id), _TIMEOUT_MS)
    except KafkaError as error:
        return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)
    return RemoveRaftVoterResponse(error_message=None)


API = Api(request=RemoveRaftVoterRequest, min_version=0, max_version=0, handle=handle)
