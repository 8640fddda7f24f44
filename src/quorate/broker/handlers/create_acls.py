"""CreateAcls, versions 1 to 3: there is no authorizer that would heed them, so none is taken."""

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.handlers.describe_acls import NO_AUTHORIZER
from quorate.broker.node import Node
from quorate.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(node: Node, context: RequestContext, request: CreateAclsRequest) -> HandlerResult:
    refused = AclCreationResult(error_code=NO_AUTHORIZER.code, error_message=NO_AUTHORIZER.message)
    return CreateAclsResponse(results=[refused] * len(request.creations))


API = Api(request=CreateAclsRequest, min_version=1, max_version=3, handle=handle)
