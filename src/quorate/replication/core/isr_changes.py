"""The in-sync replicas of a partition: what is committed, and what may be committed already without us knowing.

The controller accepts a proposal only at the partition epoch it was made from, so any newer committed membership ends
all proposals made before it. Until then, whoever an unrefused proposal would add counts as in sync: it may be elected.
"""

from quorate.kernel.ids import NodeId
from quorate.replication.core.leader_events import PartitionMembership


class IsrChanges:
    def __init__(self, membership: PartitionMembership) -> None:
        self.membership = membership
        self._proposals = 0
        #: At most one: the next is made from what this one leads to.
        self._in_flight: frozenset[NodeId] | None = None
        #: Of attempts that got no answer: such an attempt may still be on its way to the controller.
        self._possible: frozenset[NodeId] = frozenset()
        #: The controller is ahead of us; nothing we propose would be accepted.
        self._awaits_membership = False

    @property
    def maximal(self) -> frozenset[NodeId]:
        """Everybody who may be elected leader next, so everybody whom the high watermark must wait for."""
        return self.membership.isr | self._possible | (self._in_flight or frozenset())

    @property
    def possible(self) -> frozenset[NodeId]:
        """Who is not in sync as far as we know, but may be by an attempt that got no answer."""
        return self._possible - self.membership.isr

    @property
    def may_propose(self) -> bool:
        return self._in_flight is None and not self._awaits_membership

    @property
    def is_unsettled(self) -> bool:
        """Some attempt got no answer: only a newer partition epoch makes sure that it never comes into force."""
        return bool(self._possible)

    def propose(self, isr: frozenset[NodeId]) -> int:
        self._in_flight = isr
        self._proposals += 1
        return self._proposals

    def commit(self, membership: PartitionMembership) -> bool:
        """Take over a committed membership; False if it is no news."""
        if membership.partition_epoch <= self.membership.partition_epoch:
            return False
        self.membership = membership
        self._in_flight = None
        self._possible = frozenset()
        self._awaits_membership = False
        return True

    def refused(self, number: int) -> None:
        if self._is_in_flight(number):
            self._in_flight = None

    def unanswered(self, number: int) -> None:
        if self._is_in_flight(number):
            self._possible |= self._in_flight or frozenset()
            self._in_flight = None

    def outdated(self, number: int) -> None:
        if self._is_in_flight(number):
            # What is newer at the controller may be an earlier attempt of ours, so this one must not be dropped.
            self.unanswered(number)
            self._awaits_membership = True

    def _is_in_flight(self, number: int) -> bool:
        return self._in_flight is not None and number == self._proposals
