"""What the simulated transactions are held to, by name."""

from enum import StrEnum
from typing import NoReturn

from tests.simulation.replication.history import HistoryBroken


class Checker(StrEnum):
    #: What was committed shows everywhere, the group's offset too; what was not, nowhere; and there is nothing between.
    ATOMICITY = "atomicity"
    #: Readers of committed records see nothing of a transaction that nobody asked to commit, or that was aborted.
    ABORTED_READ = "aborted read"
    #: Nor are they given records of a transaction that is still open, even such as they would leave out.
    STABLE_OFFSET = "last stable offset"
    #: Once a successor has its producer id, its predecessors write nothing and commit nothing.
    FENCING = "fencing"
    #: A producer's records stand in the order in which it wrote them, each once.
    ORDER = "order"
    #: Nobody is fenced, or told that its transaction has ended, without a reason.
    REFUSAL = "refusal"
    #: When faults are over every transaction ends, and everybody can go on.
    LIVENESS = "liveness"


def report(checker: Checker, text: str) -> NoReturn:
    raise HistoryBroken(f"{checker}: {text}")
