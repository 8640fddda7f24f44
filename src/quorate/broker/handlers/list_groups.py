"""ListGroups, versions 0 to 5: the groups that this node coordinates, by state and type."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.coordination.groups.core.commands import ListGroups
from quorate.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(services: Services, context: RequestContext, request: ListGroupsRequest) -> HandlerResult:
    return _list(services, request)


async def _list(services: Services, request: ListGroupsRequest) -> ListGroupsResponse:
    command = ListGroups(
        states=frozenset(state.lower() for state in request.states_filter),
        types=frozenset(group_type.lower() for group_type in request.types_filter),
    )
    result = await services.groups.list_groups(command)
    return ListGroupsResponse(
        error_code=result.error,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in result.groups
        ],
    )


API = Api(request=ListGroupsRequest, min_version=0, max_version=5, handle=handle)
