"""Changes of the quorum's membership that a client asks for, answered when this node sees them too."""

import asyncio
from collections.abc import Callable

from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId
from quorate.quorum.core.leader_requests import ChangeRefused, Promote, Remove
from quorate.quorum.core.membership import ChangeRefusal, Membership
from quorate.quorum.leader_calls import NoQuorum

_LOOK_AGAIN_S = 0.01


async def promote_learner(services: Services, learner: NodeId, timeout_ms: float) -> None:
    """Make a learner a voter as soon as it has caught up, or fail with why not."""
    member = services.quorum.driver.membership.member(learner)
    if member is None:
        raise KafkaError(
            ErrorCode.VOTER_NOT_FOUND, f"Node {learner} does not follow the metadata log: start it before it votes."
        )
    if member.is_voter:
        raise KafkaError(ErrorCode.DUPLICATE_VOTER, f"Node {learner} is a voter already.")
    await _change(services, Promote(node_id=learner), timeout_ms, lambda membership: learner in membership.voters)


async def remove_member(services: Services, removed: NodeId, timeout_ms: float) -> None:
    """Take a voter's vote away, and what is left of a node that is no broker, or fail with why not."""
    if services.quorum.driver.membership.member(removed) is None:
        raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"Node {removed} is no member of the quorum.")

    def is_done(membership: Membership) -> bool:
        """A broker stays as a learner."""
        member = membership.member(removed)
        return member is None or (not member.is_voter and removed in services.metadata.image.brokers)

    await _change(services, Remove(node_id=removed), timeout_ms, is_done)


async def _change(
    services: Services, request: Promote | Remove, timeout_ms: float, is_done: Callable[[Membership], bool]
) -> None:
    deadline = services.loop.time() + timeout_ms / 1000
    try:
        answer, was_repeated = await services.quorum.leader_calls.ask(request, timeout_ms)
    except NoQuorum:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The quorum has not agreed on the change in time.") from None
    # What an earlier attempt did is what the asker wanted.
    if isinstance(answer, ChangeRefused) and not (was_repeated and answer.reason in _DONE_BEFORE):
        code = _CODES.get(answer.reason, ErrorCode.INVALID_REQUEST)
        raise KafkaError(code, f"The membership cannot be changed: {answer.reason}.")
    # A node that is removed need not hear of it any more.
    while request.node_id != services.node_id and not is_done(services.quorum.driver.membership):
        if services.loop.time() >= deadline:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "This node has not heard of the change in time.")
        await asyncio.sleep(_LOOK_AGAIN_S)


_DONE_BEFORE = frozenset(
    {str(ChangeRefusal.NOT_A_MEMBER), str(ChangeRefusal.NOT_A_LEARNER), str(ChangeRefusal.NOT_A_VOTER)}
)
_CODES = {
    str(ChangeRefusal.NOT_A_MEMBER): ErrorCode.VOTER_NOT_FOUND,
    str(ChangeRefusal.NOT_A_VOTER): ErrorCode.VOTER_NOT_FOUND,
    str(ChangeRefusal.NOT_A_LEARNER): ErrorCode.DUPLICATE_VOTER,
}
