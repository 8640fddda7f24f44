"""The conditions that a node reports about itself: problems an operator must know of, and progress.

Each condition has a kind ("disk-full") and a subject (a path, a partition; empty where there is only one). Setting it
again replaces it. ``quorate cluster status`` and ``doctor`` show them; a problem makes the cluster unhealthy.
"""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

#: Reported of one kind; the others are counted.
REPORTED_PER_KIND = 100


class Severity(StrEnum):
    PROBLEM = "problem"
    INFORMATION = "information"


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    subject: str = ""
    severity: Severity = Severity.PROBLEM
    #: One sentence that says what is wrong and what to do, or how far something has got.
    sentence: str


class Conditions:
    def __init__(self) -> None:
        self._by_kind: dict[str, dict[str, Condition]] = {}

    def set(self, condition: Condition) -> bool:
        """Report it from now on; returns whether nothing was reported of this kind and subject before."""
        conditions = self._by_kind.setdefault(condition.kind, {})
        is_new = condition.subject not in conditions
        conditions[condition.subject] = condition
        return is_new

    def clear(self, kind: str, subject: str = "") -> bool:
        """It has passed; returns whether it was reported."""
        conditions = self._by_kind.get(kind, {})
        if subject not in conditions:
            return False
        del conditions[subject]
        if not conditions:
            del self._by_kind[kind]
        return True

    def find(self, kind: str, subject: str = "") -> Condition | None:
        return self._by_kind.get(kind, {}).get(subject)

    def __iter__(self) -> Iterator[Condition]:
        """Everything that holds, problems first."""
        every = [condition for conditions in self._by_kind.values() for condition in conditions.values()]
        return iter(sorted(every, key=lambda each: (each.severity is not Severity.PROBLEM, each.kind, each.subject)))

    def reported(self) -> list[Condition]:
        """A bounded number of them: the first of each kind, and how many more there are."""
        reported: list[Condition] = []
        counts: dict[tuple[str, Severity], int] = {}
        for condition in self:
            count = counts[condition.kind, condition.severity] = counts.get((condition.kind, condition.severity), 0) + 1
            if count <= REPORTED_PER_KIND:
                reported.append(condition)
        for (kind, severity), count in counts.items():
            if count > REPORTED_PER_KIND:
                more = f"and {count - REPORTED_PER_KIND} more of the kind {kind}"
                reported.append(Condition(kind=kind, severity=severity, subject="…", sentence=more))
        return reported
