"""What is wrong, one finding a line, and the report that the doctor makes of all of them: as text or as JSON."""

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from quorate.cli.terminal import counted
from quorate.kernel.ids import NodeId

#: Of each kind; a node that is down shows in every partition it had.
SHOWN_PER_KIND = 20


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


class Report(msgspec.Struct, frozen=True, kw_only=True):
    node_count: int
    partition_count: int
    claims_tried: int
    findings: Sequence[DoctorFinding]
    #: What nodes tell of themselves without anything being wrong, such as the progress of a scrub.
    information: Sequence[str] = ()

    @property
    def disagreements(self) -> int:
        return sum(finding.is_disagreement for finding in self.findings)

    @property
    def errors(self) -> int:
        return sum(finding.severity is FindingSeverity.ERROR for finding in self.findings)


def nobody_answers(reason: str) -> Report:
    lost = DoctorFinding(kind=Kind.UNREACHABLE, subject="cluster", text=reason)
    return Report(node_count=0, partition_count=0, claims_tried=0, findings=[lost])


def text_lines(report: Report) -> Iterator[str]:
    yield from finding_lines(report.findings)
    yield from (f"information: {line}" for line in report.information)
    yield summary(report)


def finding_lines(findings: Sequence[DoctorFinding]) -> Iterator[str]:
    shown: dict[Kind, int] = {}
    for finding in findings:
        shown[finding.kind] = shown.get(finding.kind, 0) + 1
        if shown[finding.kind] <= SHOWN_PER_KIND:
            yield f"{finding.severity}: {finding}"
    for kind, count in shown.items():
        if count > SHOWN_PER_KIND:
            yield f"and {count - SHOWN_PER_KIND} more of the kind {kind} (--format json has all)"


def summary(report: Report) -> str:
    """The last line. What is wrong without being a disagreement is counted only where it is there."""
    others = len(report.findings) - report.disagreements
    line = (
        f"{counted(report.node_count, 'node')}, {counted(report.partition_count, 'partition')}, "
        f"{counted(report.claims_tried, 'claim')} tried, {counted(report.disagreements, 'disagreement')}"
    )
    return f"{line}, {counted(others, 'other finding')}" if others else line


def json_line(report: Report) -> str:
    return msgspec.json.encode(
        {
            "healthy": report.errors == 0,
            "nodes": report.node_count,
            "partitions": report.partition_count,
            "claims_tried": report.claims_tried,
            "disagreements": report.disagreements,
            "errors": report.errors,
            "information": report.information,
            "findings": [
                {
                    "severity": finding.severity,
                    "kind": finding.kind,
                    "subject": finding.subject,
                    "node_id": finding.node_id,
                    "text": finding.text,
                    "is_disagreement": finding.is_disagreement,
                }
                for finding in report.findings
            ],
        }
    ).decode()


def change_lines(before: Report | None, now: Report) -> Iterator[str]:
    """What is new and what is gone since the report before, and the end line; the first time all of it."""
    if before is None:
        yield from text_lines(now)
        return
    old = {finding.identity: finding for finding in before.findings}
    new = {finding.identity: finding for finding in now.findings}
    appeared = [finding for identity, finding in new.items() if identity not in old]
    gone = [finding for identity, finding in old.items() if identity not in new]
    yield from finding_lines(appeared)
    yield from (f"gone: {finding}" for finding in gone)
    if appeared or gone:
        yield summary(now)
