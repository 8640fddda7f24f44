"""One thing that is wrong, in a line."""

from enum import StrEnum

import msgspec

from quorate.kernel.ids import NodeId


class FindingSeverity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class Kind(StrEnum):
    #: Two nodes name different leaders for the same epoch, or one lags behind and stays there.
    LEADER = "leader"
    METADATA = "metadata"
    QUORUM = "quorum"
    COORDINATOR = "coordinator"
    #: A node does otherwise than it, or the others, say.
    REFUSED = "refused"
    ACCEPTED = "accepted"
    HINT = "hint"
    #: Not a disagreement: all say the same, and it is bad news.
    UNREACHABLE = "unreachable"
    FENCED = "fenced"
    #: A node says so of itself.
    CONDITION = "condition"
    QUORUM_LEADERLESS = "quorum-leaderless"
    LEADERLESS = "leaderless"
    LEADER_UNREACHABLE = "leader-unreachable"
    UNDER_MIN_ISR = "under-min-isr"
    UNDER_REPLICATED = "under-replicated"
    UNTRIED = "untried"


_STATES = frozenset(
    {
        Kind.UNREACHABLE,
        Kind.FENCED,
        Kind.CONDITION,
        Kind.QUORUM_LEADERLESS,
        Kind.LEADERLESS,
        Kind.LEADER_UNREACHABLE,
        Kind.UNDER_MIN_ISR,
        Kind.UNDER_REPLICATED,
        Kind.UNTRIED,
    }
)


class DoctorFinding(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    severity: FindingSeverity = FindingSeverity.ERROR
    #: What it is about: "orders-3", "node 7", "quorum", "cluster".
    subject: str
    text: str
    #: The node that deviates, where it is one.
    node_id: NodeId | None = None
    #: What the node holds on to. Once it says something else, whatever that is, it has moved: another finding.
    held: str = ""
    #: Whether no change that is just under way could explain it, so that a second look is not needed.
    is_certain: bool = False

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}"

    @property
    def identity(self) -> tuple[Kind, str, NodeId | None, str]:
        return self.kind, self.subject, self.node_id, self.held

    @property
    def is_disagreement(self) -> bool:
        return self.kind not in _STATES


def by_weight(findings: "list[DoctorFinding]") -> "list[DoctorFinding]":
    """Errors first, then nodes and quorum before the partitions that suffer from them."""
    return sorted(
        findings, key=lambda each: (each.severity is not FindingSeverity.ERROR, each.kind in _PARTITION_STATES)
    )


_PARTITION_STATES = frozenset(
    {Kind.LEADERLESS, Kind.LEADER_UNREACHABLE, Kind.UNDER_MIN_ISR, Kind.UNDER_REPLICATED, Kind.UNTRIED}
)
