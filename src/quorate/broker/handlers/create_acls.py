"""CreateAcls, versions 1 to 3: there is no authorizer that would heed them, so none is taken."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.handlers.describe_acls import NO_AUTHORIZER
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(services: Services, context: RequestContext, request: CreateAclsRequest) -> HandlerResult:
    refused = AclCreationResult(error_code=NO_AUTHORIZER.code, error_message=NO_AUTHORIZER.message)
    return CreateAclsResponse(results=[refused] * len(request.creations))


API = Api(request=CreateAclsRequest, min_version=1, max_version=3, handle=handle)
