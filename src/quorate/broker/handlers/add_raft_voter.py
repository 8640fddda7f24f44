"""AddRaftVoter, versions 0 to 1: a learner becomes a voter once it has caught up.

Gap: a node becomes a learner by starting, so the listeners in the request are not used; answers always wait for the
commit.
"""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.quorum_membership import promote_learner
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId
from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


def handle(services: Services, context: RequestContext, request: AddRaftVoterRequest) -> HandlerResult:
    if request.cluster_id not in (None, services.metadata.image.cluster_id):
        return AddRaftVoterResponse(
            error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message="The request is meant for another cluster."
        )
    return _add(services, request)


async def _add(services: Services, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    try:
        await promote_learner(services, NodeId(request.voter_id), request.timeout_ms)
    except KafkaError as error:
        return AddRaftVoterResponse(error_code=error.code, error_message=error.message)
    return AddRaftVoterResponse(error_message=None)


API = Api(request=AddRaftVoterRequest, min_version=0, max_version=1, handle=handle)
