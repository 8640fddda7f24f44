"""DeleteAcls, versions 1 to 3: there is no authorizer that would have any."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.handlers.describe_acls import NO_AUTHORIZER
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle(services: Services, context: RequestContext, request: DeleteAclsRequest) -> HandlerResult:
    refused = DeleteAclsFilterResult(error_code=NO_AUTHORIZER.code, error_message=NO_AUTHORIZER.message)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


API = Api(request=DeleteAclsRequest, min_version=1, max_version=3, handle=handle)
