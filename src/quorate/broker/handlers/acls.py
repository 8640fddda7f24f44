"""The ACLs of a cluster. There is no authorizer, and who asks is told so, as by Apache Kafka without one.

- DescribeAcls, versions 1 to 3.
- CreateAcls, versions 1 to 3: none is taken, as nothing would heed it.
- DeleteAcls, versions 1 to 3: there are none.
"""

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from quorate.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from quorate.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_NO_AUTHORIZER = KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def describe_acls(services: Services, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=_NO_AUTHORIZER.code, error_message=_NO_AUTHORIZER.message)


def create_acls(services: Services, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=_NO_AUTHORIZER.code, error_message=_NO_AUTHORIZER.message)
    return CreateAclsResponse(results=[refused] * len(request.creations))


def delete_acls(services: Services, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=_NO_AUTHORIZER.code, error_message=_NO_AUTHORIZER.message)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


DESCRIBE_ACLS = Api(request=DescribeAclsRequest, min_version=1, max_version=3, handle=describe_acls)
CREATE_ACLS = Api(request=CreateAclsRequest, min_version=1, max_version=3, handle=create_acls)
DELETE_ACLS = Api(request=DeleteAclsRequest, min_version=1, max_version=3, handle=delete_acls)
