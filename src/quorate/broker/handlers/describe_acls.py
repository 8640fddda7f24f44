"""DescribeAcls, versions 1 to 3: there is no authorizer, and who asks is told so, as by Apache Kafka without one."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

NO_AUTHORIZER = KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def handle(services: Services, context: RequestContext, request: DescribeAclsRequest) -> HandlerResult:
    return DescribeAclsResponse(error_code=NO_AUTHORIZER.code, error_message=NO_AUTHORIZER.message)


API = Api(request=DescribeAclsRequest, min_version=1, max_version=3, handle=handle)
