"""JoinGroup, versions 0 to 9: a member asks to be part of the next generation of its group."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.coordination.groups.core.classic_protocol import GroupProtocol
from quorate.coordination.groups.core.commands import JoinGroup, JoinGroupResult
from quorate.kernel.ids import GroupId, MemberId
from quorate.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

_REBALANCE_TIMEOUT_FROM = 1
_KNOWN_MEMBER_ID_FROM = 4
_NULL_PROTOCOL_FROM = 7
_SKIP_ASSIGNMENT_FROM = 9


def handle(services: Services, context: RequestContext, request: JoinGroupRequest) -> HandlerResult:
    return _join(services, context, request)


async def _join(services: Services, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    command = _command(context, request)
    result = await services.groups.ask(command.group_id, command, JoinGroupResult)
    no_protocol = None if context.api_version >= _NULL_PROTOCOL_FROM else ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=no_protocol if result.protocol_name is None else result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )


def _command(context: RequestContext, request: JoinGroupRequest) -> JoinGroup:
    version = context.api_version
    return JoinGroup(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",  # As Java prints an address; tools show it like this.
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms
        if version >= _REBALANCE_TIMEOUT_FROM
        else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(
            GroupProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in request.protocols
        ),
        require_known_member_id=version >= _KNOWN_MEMBER_ID_FROM,
        supports_skip_assignment=version >= _SKIP_ASSIGNMENT_FROM,
    )


API = Api(request=JoinGroupRequest, min_version=0, max_version=9, handle=handle, max_elements=10_000)
