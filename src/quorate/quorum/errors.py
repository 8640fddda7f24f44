"""Why the quorum did not do what it was asked for. Neither is ever shown to a client: the asker tries again."""

from quorate.kernel.ids import QuorumLeader
from quorate.quorum.core.membership import ChangeRefusal
from quorate.quorum.core.outcomes import Refusal


class NotQuorumLeader(Exception):
    """Nothing happened and nothing will: safe to ask again, at the leader where one is known."""

    def __init__(self, reason: str | Refusal | ChangeRefusal, leader: QuorumLeader | None) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.leader = leader


class OutcomeUnknown(Exception):
    """The request may have been carried out, or may yet be. Only a command that may be repeated may be asked again."""
