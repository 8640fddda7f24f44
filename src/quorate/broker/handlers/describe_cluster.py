"""DescribeCluster, versions 0 to 2. Gap: authorized operations are not reported."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS = 1


def handle(services: Services, context: RequestContext, request: DescribeClusterRequest) -> HandlerResult:
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to a broker endpoint but asks for controllers.",
        )
    image = services.metadata.image
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=services.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for broker in (image.brokers.values() if request.include_fenced_brokers else image.live_brokers)
        ],
    )


API = Api(request=DescribeClusterRequest, min_version=0, max_version=2, handle=handle)
