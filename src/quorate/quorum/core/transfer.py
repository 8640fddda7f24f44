"""A leadership transfer under way."""

import msgspec

from quorate.kernel.ids import NodeId


class Transfer(msgspec.Struct, kw_only=True):
    """While there is one, the leader takes no proposals, so that the target can catch up (thesis, section 3.10)."""

    target: NodeId
    ticket: int
    deadline_ms: int
    is_requested: bool = False  # The target has the whole log and was told to campaign.
